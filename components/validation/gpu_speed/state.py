"""The state of GPUs in the output of `nvidia-smi -q -x`: link, memory errors, power limit, clocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from components.validation.preflight.smi import bus_address, field, gpu_elements, number, throttle_reasons

_NUMBER = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:x| W| MiB| MHz)?", re.ASCII)


@dataclass(frozen=True)
class State:
    """One GPU at one moment. Values that nvidia-smi does not show are None.

    minor       number of its device file
    width, gen  the PCIe link's lanes and generation now
    ecc         whether ECC is on
    uncorrectable, corrected   memory errors over its lifetime
    remapped    rows of its memory that were replaced
    throttled   reasons that reduce its clocks now, without its power limit
    """

    bus: str
    uuid: str
    name: str
    minor: int | None
    display: bool
    width: int | None
    gen: int | None
    ecc: bool | None
    uncorrectable: int
    corrected: int
    remapped: int
    remap_pending: bool
    remap_failed: bool
    power_limit: float | None
    default_power_limit: float | None
    throttled: tuple[str, ...]


def read_states(text: str) -> list[State]:
    """Return the state of each GPU; none if the text is not nvidia-smi's. Never raises."""
    return [_state(element) for element in gpu_elements(text)]


def _state(gpu: Element) -> State:
    minor = _figure(gpu, "minor_number")
    ecc = field(gpu, "ecc_mode/current_ecc")
    return State(
        bus=bus_address(gpu.get("id", "")),
        uuid=field(gpu, "uuid") or "",
        name=field(gpu, "product_name") or "",
        minor=None if minor is None else int(minor),
        display=field(gpu, "display_active") == "Enabled",
        width=_whole(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
        gen=_whole(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        ecc={"Enabled": True, "Disabled": False}.get(ecc or ""),
        uncorrectable=_errors(gpu.find("ecc_errors/aggregate"), "uncorrectable", "double_bit"),
        corrected=_errors(gpu.find("ecc_errors/aggregate"), "_correctable", "single_bit"),
        remapped=number(field(gpu, "remapped_rows/remapped_row_corr"))
        + number(field(gpu, "remapped_rows/remapped_row_unc")),
        remap_pending=field(gpu, "remapped_rows/remapped_row_pending") == "Yes",
        remap_failed=field(gpu, "remapped_rows/remapped_row_failure") == "Yes",
        power_limit=_figure(
            gpu, "gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
        default_power_limit=_figure(
            gpu, "gpu_power_readings/default_power_limit", "power_readings/default_power_limit"
        ),
        throttled=throttle_reasons(gpu),
    )  # fmt: skip


def _figure(gpu: Element, *paths: str) -> float | None:
    """Return the number at the first path that has one."""
    for path in paths:
        if match := _NUMBER.fullmatch(field(gpu, path) or ""):
            return float(match[1])
    return None


def _whole(gpu: Element, *paths: str) -> int | None:
    figure = _figure(gpu, *paths)
    return None if figure is None else int(figure)


def _errors(errors: Element | None, word: str, old: str) -> int:
    """Return a sum of memory errors. Volta and older have their own element with a total."""
    if errors is None:
        return 0
    return sum(number(element.text) for element in errors if word in element.tag) + number(
        errors.findtext(f"{old}/total")
    )
