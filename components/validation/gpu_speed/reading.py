"""The reading of one GPU, and the line of a job's output that carries a node's readings.

A user's process prints the line, so it may contain anything: only texts and numbers of the right form are read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

WORD = "gpu-speed"
MARK = f"# tailrack {WORD} "
MOST_GPUS, MOST_DOUBTS = 64, 8
_LINE = re.compile(rf"^{MARK}([a-z0-9][a-z0-9.-]{{0,62}}) (\[.*\])$", re.ASCII)
_TEXT = re.compile(r"[ -~]{0,200}", re.ASCII)
_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """One GPU. A figure that was not measured is None.

    minor           number of its device file
    width, gen      lanes and generation of its PCIe link; `loaded`: while data was copied
    host_to_gpu, gpu_to_host, memory   GB/s; `memory` counts reading and writing
    matrix          TFLOP/s of the product of two matrices of `matrix_type` (bf16, fp16)
    uncorrectable, corrected, remapped   counts over its lifetime
    throttled       reasons that reduced its clocks under load
    doubts          why figures are missing
    """

    bus: str
    uuid: str = ""
    name: str = ""
    minor: int | None = None
    width: int | None = None
    gen: int | None = None
    loaded: bool = False
    host_to_gpu: float | None = None
    gpu_to_host: float | None = None
    memory: float | None = None
    matrix: float | None = None
    matrix_type: str = ""
    ecc: bool | None = None
    uncorrectable: int = 0
    corrected: int = 0
    remapped: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    power_limit: float | None = None
    default_power_limit: float | None = None
    throttled: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return its name in messages, such as `GPU 3 (0000:0a:00.0)`."""
        return f"GPU {self.bus}" if self.minor is None else f"GPU {self.minor} ({self.bus})"

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, data: object) -> Reading:
        """Read the output of `plain`. Raises ValueError for any other form."""
        if not isinstance(data, Mapping) or not set(data) <= set(_FORMS):
            raise ValueError("not a reading")
        values = {key: _FORMS[key](value) for key, value in data.items()}
        if not _BUS.fullmatch(values.get("bus", "")):
            raise ValueError("not a PCI address")
        return cls(**values)


def _text(value: object) -> str:
    if not isinstance(value, str) or not _TEXT.fullmatch(value):
        raise ValueError("not a text")
    return value


def _figure(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError("not a number")
    return float(value)


def _whole(value: object) -> int | None:
    figure = _figure(value)
    return None if figure is None else int(figure)


def _count(value: object) -> int:
    return _whole(value) or 0


def _maybe(value: object) -> bool | None:
    return None if value is None else bool(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("not a list")
    return tuple(map(_text, value[:MOST_DOUBTS]))


_READERS = {
    "str": _text, "int | None": _whole, "float | None": _figure, "bool": bool, "bool | None": _maybe, "int": _count,
    "tuple[str, ...]": _texts,
}  # fmt: skip
_FORMS: Mapping[str, Any] = {field.name: _READERS[str(field.type)] for field in fields(Reading)}


def line(node: str, readings: Sequence[Reading]) -> str:
    """Return one line of a job's output."""
    return f"{MARK}{node} {json.dumps([reading.plain() for reading in readings[:MOST_GPUS]], sort_keys=True)}"


def read_readings(data: object) -> list[Reading]:
    """Return the readings in a list, without those of another form."""
    readings = []
    for item in data[:MOST_GPUS] if isinstance(data, list) else ():
        try:
            readings.append(Reading.read(item))
        except (ValueError, TypeError, OverflowError):
            continue
    return readings


def read_lines(output: str) -> dict[str, list[Reading]]:
    """Return readings by node from a job's output, without malformed lines; a node's first line counts."""
    readings: dict[str, list[Reading]] = {}
    for text in output.split("\n"):
        match = _LINE.match(text.rstrip("\r"))
        if match is None or match[1] in readings:
            continue
        try:
            readings[match[1]] = read_readings(json.loads(match[2]))
        except (ValueError, RecursionError):
            continue
    return readings
