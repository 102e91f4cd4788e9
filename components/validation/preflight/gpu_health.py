"""Parse `nvidia-smi -q -x` into one record per GPU. Missing elements are None.

Some names differ by driver (clocks_throttle_reasons became clocks_event_reasons in 535).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

# Larger than the answer for all GPUs that a machine can have.
MOST_BYTES = 4_000_000
_NUMBER = re.compile(r"(\d{1,18})x?(?: |$)", re.ASCII)
_TEXT = re.compile(r"[ -~]{1,120}")


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    uncorrectable        memory errors since the driver was loaded that ECC could not correct
    uncorrectable_ever   the same errors over its lifetime
    throttled            reasons that reduce its clocks now: hw_slowdown, sw_thermal_slowdown, ...
    pending              actions that wait for a reset: row remap, page retirement, channel repair
    broken               faults that no reset repairs
    recovery             action that the driver requests: Reset, Reboot, Drain P2P, ...; None without a request
    fabric               state and status of its registration with the fabric manager; None without one
    health               unhealthy states of its fabric, by name
    lost                 texts of nvidia-smi in fields that it could not read from the GPU
    """

    bus: str
    display: bool
    mig: bool
    uncorrectable: int
    uncorrectable_ever: int
    throttled: tuple[str, ...]
    pending: tuple[str, ...]
    broken: tuple[str, ...]
    recovery: str | None
    fabric: tuple[str, str] | None
    health: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Smi:
    """The answer: the driver's version, the GPUs, whether it is complete, and text before or after it."""

    driver: str | None
    gpus: tuple[Gpu, ...]
    whole: bool = True
    text: str = ""


_PENDING = {
    "remapped_rows/remapped_row_pending": "row remap",
    "retired_pages/pending_retirement": "page retirement",
    "retired_pages/pending_blacklist": "page retirement",
    "ecc_errors/channel_repair_pending": "channel repair",
    "ecc_errors/tpc_repair_pending": "TPC repair",
}
_BROKEN = {
    "remapped_rows/remapped_row_failure": "a row remap failed",
    "ecc_errors/aggregate/sram_threshold_exceeded": "more SRAM errors than it is made for",
    "ecc_errors/unrepairable_memory": "memory that cannot be repaired",
}
_HELD_DOWN = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_NOTHING = {"none", "n/a", "not supported", "not available", ""}
_WELL = {"healthy", "full", "false", "no"}
# Texts in fields that the driver could not read from the GPU.
_LOST = re.compile(r"\[?(?:GPU is lost|GPU requires (?:a )?reset|Unknown Error|ERR!)\]?", re.IGNORECASE)
_PROCESSES = re.compile(r"<(processes|accounted_processes)>.*?</\1>", re.DOTALL)
_BEGIN, _END = "<nvidia_smi_log", "</nvidia_smi_log>"


def read_smi(text: str) -> Smi | None:
    """Return the content of `nvidia-smi -q -x`, even among other text or cut off; else None. Never raises."""
    begin, end = text.find(_BEGIN), text.rfind(_END)
    root = _log(text)
    if root is None:
        return None
    whole = end > begin
    rest = f"{text[:begin]} {text[end + len(_END) :] if whole else ''}"
    message = " ".join(re.sub(r"<[?!][^>]*>", " ", rest).split())
    return Smi(field(root, "driver_version"), tuple(_gpu(element) for element in root.findall("gpu")), whole, message)


def gpu_elements(text: str) -> list[ElementTree.Element]:
    """Return the element of each GPU in the output; none if it cannot be read. Never raises."""
    root = _log(text)
    return [] if root is None else root.findall("gpu")


def _log(text: str) -> ElementTree.Element | None:
    begin, end = text.find(_BEGIN), text.rfind(_END)
    if len(text) > MOST_BYTES or "<!ENTITY" in text or begin < 0:
        return None
    if end <= begin:
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
    return root if root.tag == "nvidia_smi_log" else None


def _gpu(gpu: ElementTree.Element) -> Gpu:
    state, status = field(gpu, "fabric/state"), field(gpu, "fabric/status")
    recovery = field(gpu, "gpu_recovery_action")
    return Gpu(
        bus=bus_address(gpu.get("id", "")),
        display=field(gpu, "display_active") == "Enabled",
        mig=field(gpu, "mig_mode/current_mig") == "Enabled",
        uncorrectable=memory_errors(gpu, "volatile"),
        uncorrectable_ever=memory_errors(gpu, "aggregate"),
        throttled=throttle_reasons(gpu),
        pending=tuple(word for path, word in _PENDING.items() if field(gpu, path) == "Yes"),
        broken=tuple(word for path, word in _BROKEN.items() if field(gpu, path) == "Yes"),
        recovery=recovery if recovery and recovery.lower() not in _NOTHING and "deprecated" not in recovery else None,
        fabric=(state, status or "") if state and state.lower() not in _NOTHING else None,
        health=tuple(_not_well(gpu.find("fabric/health"))),
        lost=tuple(sorted({text for element in gpu.iter() if _LOST.fullmatch(text := (element.text or "").strip())})),
    )


def _not_well(health: ElementTree.Element | None) -> Iterator[tuple[str, str]]:
    for element in health if health is not None else ():
        text = (element.text or "").strip()
        # For partitions of a rack: a single machine has none and is healthy.
        if element.tag != "partition_assigned" and text.lower() not in _NOTHING | _WELL and _TEXT.fullmatch(text):
            yield element.tag, text


def bus_address(text: str) -> str:
    """Return nvidia-smi's address `00000000:18:00.0` in sysfs's form `0000:18:00.0`; empty if malformed."""
    match = re.fullmatch(r"(?:0000)?([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])", text)
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4]}".lower() if match else ""


def field(element: ElementTree.Element, path: str) -> str | None:
    """Return the text at a path; None if it is missing or not printable."""
    node = element.find(path)
    text = (node.text or "").strip() if node is not None else ""
    return text if _TEXT.fullmatch(text) else None


def throttle_reasons(gpu: ElementTree.Element) -> tuple[str, ...]:
    """Return the reasons that reduce a GPU's clocks now, without its power limit."""
    return tuple(
        reason
        for reason in _HELD_DOWN
        if any(
            field(gpu, f"clocks_{word}_reasons/clocks_{word}_reason_{reason}") == "Active"
            for word in ("event", "throttle")
        )
    )


def memory_errors(gpu: ElementTree.Element, kind: str, word: str = "uncorrectable", old: str = "double_bit") -> int:
    """Return a sum of memory errors. Volta and older have their own element, with a total."""
    counts = [number(element.text) for element in gpu.findall(f"ecc_errors/{kind}/*") if word in element.tag]
    return sum(counts) + number(gpu.findtext(f"ecc_errors/{kind}/{old}/total"))


def number(text: str | None) -> int:
    """Return the whole number at the start of a text, else 0."""
    match = _NUMBER.match(text or "")
    return int(match[1]) if match else 0
