"""The reading of one GPU: its state in the output of `nvidia-smi -q -x`, and its measured figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from xml.etree.ElementTree import Element

from components.validation.preflight.gpu_health import (
    bus_address,
    field,
    gpu_elements,
    memory_errors,
    number,
    throttle_reasons,
)
from components.validation.untrusted import data_in, line_of, read

WORD = "gpu-speed"
MOST_GPUS = 64
_NUMBER = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:x| W| MiB| MHz)?", re.ASCII)
# The longest texts, of doubts.
MOST_CHARACTERS = 200
Text = Annotated[str, rf"[ -~]{{0,{MOST_CHARACTERS}}}"]


@dataclass(frozen=True)
class Reading:
    """One GPU. Values that were not measured or that nvidia-smi does not show are None.

    minor           number of its device file
    width, gen      lanes and generation of its PCIe link; `loaded`: while data was copied
    host_to_gpu, gpu_to_host, memory   GB/s; `memory` counts reading and writing
    matrix          TFLOP/s of the product of two matrices of `matrix_type` (bf16, fp16)
    uncorrectable, corrected   memory errors over its lifetime
    remapped        rows of its memory that were replaced
    throttled       reasons that reduced its clocks, without its power limit
    doubts          why figures are missing
    """

    bus: Annotated[str, r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"]
    uuid: Text = ""
    name: Text = ""
    minor: int | None = None
    width: int | None = None
    gen: int | None = None
    loaded: bool = False
    host_to_gpu: float | None = None
    gpu_to_host: float | None = None
    memory: float | None = None
    matrix: float | None = None
    matrix_type: Text = ""
    ecc: bool | None = None
    uncorrectable: int = 0
    corrected: int = 0
    remapped: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    power_limit: float | None = None
    default_power_limit: float | None = None
    throttled: tuple[Text, ...] = ()
    doubts: tuple[Text, ...] = ()

    @property
    def title(self) -> str:
        """Return its name in messages, such as `GPU 3 (0000:0a:00.0)`."""
        return f"GPU {self.bus}" if self.minor is None else f"GPU {self.minor} ({self.bus})"

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def line(node: str, readings: Sequence[Reading]) -> str:
    """Return one line of a job's output."""
    return line_of(WORD, node, [reading.plain() for reading in readings[:MOST_GPUS]])


def read_readings(data: object) -> list[Reading]:
    """Return the readings in a list, without those of another form."""
    readings = []
    for item in data[:MOST_GPUS] if isinstance(data, list) else ():
        try:
            readings.append(read(Reading, item, exact=True))
        except ValueError:
            continue
    return readings


def read_lines(output: str) -> dict[str, list[Reading]]:
    """Return readings by node from a job's output, without malformed ones."""
    return {node: read_readings(data) for node, data in data_in(output, WORD).items()}


def read_states(text: str) -> list[Reading]:
    """Return the state of each GPU that shows no display; none if the text is not nvidia-smi's. Never raises."""
    return [
        _state(element)
        for element in gpu_elements(text)
        if bus_address(element.get("id", "")) and field(element, "display_active") != "Enabled"
    ]


def _state(gpu: Element) -> Reading:
    minor, rows = _figure(gpu, "minor_number"), "remapped_rows/remapped_row"
    link, power = "pci/pci_gpu_link_info", "power_readings"
    return Reading(
        bus=bus_address(gpu.get("id", "")),
        uuid=field(gpu, "uuid") or "",
        name=field(gpu, "product_name") or "",
        minor=None if minor is None else int(minor),
        width=number(field(gpu, f"{link}/link_widths/current_link_width")) or None,
        gen=number(field(gpu, f"{link}/pcie_gen/current_link_gen")) or None,
        ecc={"Enabled": True, "Disabled": False}.get(field(gpu, "ecc_mode/current_ecc") or ""),
        uncorrectable=memory_errors(gpu, "aggregate"),
        corrected=memory_errors(gpu, "aggregate", "_correctable", "single_bit"),
        remapped=number(field(gpu, f"{rows}_corr")) + number(field(gpu, f"{rows}_unc")),
        remap_pending=field(gpu, f"{rows}_pending") == "Yes",
        remap_failed=field(gpu, f"{rows}_failure") == "Yes",
        power_limit=_figure(
            gpu, f"gpu_{power}/current_power_limit", f"{power}/enforced_power_limit", f"{power}/power_limit"
        ),
        default_power_limit=_figure(gpu, f"gpu_{power}/default_power_limit", f"{power}/default_power_limit"),
        throttled=throttle_reasons(gpu),
    )


def _figure(gpu: Element, *paths: str) -> float | None:
    """Return the number at the first path that has one."""
    matches = (_NUMBER.fullmatch(field(gpu, path) or "") for path in paths)
    return next((float(match[1]) for match in matches if match), None)
