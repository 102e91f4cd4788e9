"""Read `nvidia-smi -q -x`: its GPUs, and the reading of each with its measured figures. Missing elements are None.

Some names differ by driver (clocks_throttle_reasons became clocks_event_reasons in 535).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from components.validation.untrusted import data_in, line_of, read

# Larger than the answer for all GPUs that a machine can have.
MOST_BYTES = 4_000_000
_NUMBER = re.compile(r"(\d{1,18})x?(?: |$)", re.ASCII)
TEXT = re.compile(r"[ -~]{1,120}")


@dataclass(frozen=True)
class Smi:
    """The answer: the driver's version, the GPUs, whether it is complete, and text before or after it."""

    driver: str | None
    gpus: tuple[Element, ...]
    whole: bool = True
    text: str = ""


_HELD_DOWN = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_PROCESSES = re.compile(r"<(processes|accounted_processes)>.*?</\1>", re.DOTALL)
_BEGIN, _END = "<nvidia_smi_log", "</nvidia_smi_log>"


def read_smi(text: str) -> Smi | None:
    """Return the content of `nvidia-smi -q -x`, even among other text or cut off; else None. Never raises."""
    begin, end = text.find(_BEGIN), text.rfind(_END)
    if len(text) > MOST_BYTES or "<!ENTITY" in text or begin < 0:
        return None
    whole = end > begin
    rest = f"{text[:begin]} {text[end + len(_END) :] if whole else ''}"
    if not whole:
        # Keep the complete GPUs of a truncated answer.
        end = text.rfind("</gpu>") + len("</gpu>")
        if end <= begin:
            return None
    # Users choose process names, and a name with a control character is invalid XML.
    log = _PROCESSES.sub("", text[begin:end]) + _END
    try:
        root = ElementTree.fromstring(log)  # noqa: S314  entities are refused above, and the text is bounded
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    if root.tag != "nvidia_smi_log":
        return None
    message = " ".join(re.sub(r"<[?!][^>]*>", " ", rest).split())
    return Smi(field(root, "driver_version"), tuple(root.findall("gpu")), whole, message)


def bus_of(gpu: Element) -> str:
    """Return a GPU's address in sysfs's form; empty if malformed."""
    return bus_address(gpu.get("id", ""))


def bus_address(text: str) -> str:
    """Return nvidia-smi's address `00000000:18:00.0` in sysfs's form `0000:18:00.0`; empty if malformed."""
    match = re.fullmatch(r"(?:0000)?([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])", text)
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4]}".lower() if match else ""


def field(element: Element, path: str) -> str | None:
    """Return the text at a path; None if it is missing or not printable."""
    node = element.find(path)
    text = (node.text or "").strip() if node is not None else ""
    return text if TEXT.fullmatch(text) else None


def throttle_reasons(gpu: Element) -> tuple[str, ...]:
    """Return the reasons that reduce a GPU's clocks now, without its power limit."""
    return tuple(
        reason
        for reason in _HELD_DOWN
        if any(
            field(gpu, f"clocks_{word}_reasons/clocks_{word}_reason_{reason}") == "Active"
            for word in ("event", "throttle")
        )
    )


def memory_errors(gpu: Element, kind: str, word: str = "uncorrectable", old: str = "double_bit") -> int:
    """Return a sum of memory errors. Volta and older have their own element, with a total."""
    counts = [number(element.text) for element in gpu.findall(f"ecc_errors/{kind}/*") if word in element.tag]
    return sum(counts) + number(gpu.findtext(f"ecc_errors/{kind}/{old}/total"))


def number(text: str | None) -> int:
    """Return the whole number at the start of a text, else 0."""
    match = _NUMBER.match(text or "")
    return int(match[1]) if match else 0


WORD = "gpu-speed"
MOST_GPUS = 64
_FIGURE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:x| W| MiB| MHz)?", re.ASCII)
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


def line(node: str, readings: Sequence[Reading]) -> str:
    """Return one line of a job's output."""
    return line_of(WORD, node, [asdict(reading) for reading in readings[:MOST_GPUS]])


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
    smi = read_smi(text)
    gpus = smi.gpus if smi else ()
    return [_state(gpu) for gpu in gpus if bus_of(gpu) and field(gpu, "display_active") != "Enabled"]


def _state(gpu: Element) -> Reading:
    minor, rows = _figure(gpu, "minor_number"), "remapped_rows/remapped_row"
    link, power = "pci/pci_gpu_link_info", "power_readings"
    return Reading(
        bus=bus_of(gpu),
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
    matches = (_FIGURE.fullmatch(field(gpu, path) or "") for path in paths)
    return next((float(match[1]) for match in matches if match), None)
