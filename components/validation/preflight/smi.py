"""`nvidia-smi -q -x`, read: one record a GPU. Elements that a driver does not have are None; the names of some changed
between its versions (clocks_throttle_reasons became clocks_event_reasons in 535)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

# A driver for all the GPUs a machine can have says less than this.
MOST_BYTES = 4_000_000
_NUMBER = re.compile(r"(\d{1,18})(?: |$)", re.ASCII)
_TEXT = re.compile(r"[ -~]{1,120}")


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    minor          number of its device file
    uncorrectable  memory errors since the driver was loaded that ECC could not correct
    uncorrectable_ever   the same, of its life
    throttled      reasons for which its clocks are held down now: hw_slowdown, sw_thermal_slowdown, ...
    pending        what waits for a reset: row remap, page retirement, channel repair
    broken         what no reset mends
    recovery       what the driver asks for: Reset, Reboot, Drain P2P, ...; None where it asks for nothing
    fabric         state and status of its registration with the fabric manager; None where it has none
    health         of its fabric: what is neither well nor absent, by name
    lost           what nvidia-smi writes in the place of what it cannot ask the GPU for
    """

    bus: str
    name: str | None
    minor: int | None
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
    """The answer: the driver's version, None where it says none, the GPUs, whether it came to its end, and words that
    stood before or after it."""

    driver: str | None
    gpus: tuple[Gpu, ...]
    whole: bool = True
    words: str = ""


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
# What stands in a field that the driver could not ask the GPU for.
_LOST = re.compile(r"\[?(?:GPU is lost|GPU requires (?:a )?reset|Unknown Error|ERR!)\]?", re.IGNORECASE)
_PROCESSES = re.compile(r"<(processes|accounted_processes)>.*?</\1>", re.DOTALL)
_BEGIN, _END = "<nvidia_smi_log", "</nvidia_smi_log>"


def read_smi(text: str) -> Smi | None:
    """Return what `nvidia-smi -q -x` says, among other words or as far as it came; None where it is no answer.

    Never raises.
    """
    begin, end = text.find(_BEGIN), text.rfind(_END)
    if len(text) > MOST_BYTES or "<!ENTITY" in text or begin < 0:
        return None
    whole = end > begin
    if not whole:
        # Of a cut-off answer the GPUs that came to their end.
        end = text.rfind("</gpu>") + len("</gpu>")
        if end <= begin:
            return None
    # Users name processes, and a name with a control character is no XML.
    log = _PROCESSES.sub("", text[begin:end]) + _END
    around = f"{text[:begin]} {text[end + len(_END) :] if whole else ''}"
    try:
        root = ElementTree.fromstring(log)  # noqa: S314  entities are refused above, and the text is bounded
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    if root.tag != "nvidia_smi_log":
        return None
    gpus = tuple(_gpu(element) for element in root.findall("gpu"))
    words = " ".join(re.sub(r"<[?!][^>]*>", " ", around).split())
    return Smi(_said(root, "driver_version"), gpus, whole, words)


def _gpu(gpu: ElementTree.Element) -> Gpu:
    minor = _said(gpu, "minor_number")
    state, status = _said(gpu, "fabric/state"), _said(gpu, "fabric/status")
    recovery = _said(gpu, "gpu_recovery_action")
    return Gpu(
        bus=bus_address(gpu.get("id", "")),
        name=_said(gpu, "product_name"),
        minor=int(minor) if minor and re.fullmatch(r"\d{1,3}", minor, re.ASCII) else None,
        display=_said(gpu, "display_active") == "Enabled",
        mig=_said(gpu, "mig_mode/current_mig") == "Enabled",
        uncorrectable=_uncorrectable(gpu.find("ecc_errors/volatile")),
        uncorrectable_ever=_uncorrectable(gpu.find("ecc_errors/aggregate")),
        throttled=tuple(reason for reason in _HELD_DOWN if _throttled(gpu, reason)),
        pending=tuple(word for path, word in _PENDING.items() if _said(gpu, path) == "Yes"),
        broken=tuple(word for path, word in _BROKEN.items() if _said(gpu, path) == "Yes"),
        recovery=recovery if recovery and recovery.lower() not in _NOTHING and "deprecated" not in recovery else None,
        fabric=(state, status or "") if state and state.lower() not in _NOTHING else None,
        health=tuple(_not_well(gpu.find("fabric/health"))),
        lost=tuple(sorted({text for each in gpu.iter() if _LOST.fullmatch(text := (each.text or "").strip())})),
    )


def _not_well(health: ElementTree.Element | None) -> Iterator[tuple[str, str]]:
    for each in health if health is not None else ():
        text = (each.text or "").strip()
        # Of a rack's partitions: a machine of its own has none, and is well.
        if each.tag != "partition_assigned" and text.lower() not in _NOTHING | _WELL and _TEXT.fullmatch(text):
            yield each.tag, text


def bus_address(text: str) -> str:
    """`0000:18:00.0`, as sysfs has it, of nvidia-smi's `00000000:18:00.0`; empty for what is no address."""
    match = re.fullmatch(r"(?:0000)?([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])", text)
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4]}".lower() if match else ""


def _said(element: ElementTree.Element, path: str) -> str | None:
    found = element.find(path)
    text = (found.text or "").strip() if found is not None else ""
    return text if _TEXT.fullmatch(text) else None


def _throttled(gpu: ElementTree.Element, reason: str) -> bool:
    paths = (
        f"clocks_event_reasons/clocks_event_reason_{reason}",
        f"clocks_throttle_reasons/clocks_throttle_reason_{reason}",
    )
    return any(_said(gpu, path) == "Active" for path in paths)


def _uncorrectable(errors: ElementTree.Element | None) -> int:
    """The sum of what could not be corrected. Volta and older say double_bit, with a total of their own."""
    if errors is None:
        return 0
    found = [_number(each.text) for each in errors if "uncorrectable" in each.tag]
    return sum(found) + _number(errors.findtext("double_bit/total"))


def _number(text: str | None) -> int:
    match = _NUMBER.match(text or "")
    return int(match[1]) if match else 0
