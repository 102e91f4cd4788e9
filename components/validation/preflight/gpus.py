"""Checks of GPU count and health from nvidia-smi's output, and of drivers that differ between nodes."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from components.validation.preflight.findings import (
    NO_ANSWER,
    CommandResult,
    Finding,
    finding,
    read_lines,
    unjudged,
    worst_first,
)
from components.validation.preflight.gpu_health import (
    TEXT,
    Smi,
    bus_of,
    field,
    memory_errors,
    read_smi,
    throttle_reasons,
)
from components.validation.preflight.node import numbers

COUNT, DRIVER, HEALTH, FABRIC = "GPU count", "GPU driver", "GPU health", "fabric manager"
_MISSING = (
    "see 'dmesg | grep -i xid' and 'lspci -d 10de:' on the node and restart it; replace a GPU that does not come back"
)
_RESTART = "restart the node: its driver was updated while it was loaded"
_NOT_LOADED = "run 'modprobe nvidia' and 'dkms status' on the node to see why (Secure Boot needs signed modules)"
# Messages of nvidia-smi instead of an answer or beside it, with their meaning and remedy.
_SENTENCES = (
    ("version mismatch", "the loaded driver is not the installed one", _RESTART),
    ("couldn't communicate", "the driver does not load", _NOT_LOADED),
    ("gpu is lost", "a GPU is lost", _MISSING),
    ("unable to determine the device handle", "a GPU is lost", _MISSING),
    ("no devices were found", "the driver finds no GPU", _MISSING),
    ("requires reset", "a GPU needs a reset", "drain the node and restart it"),
)
_RESET = "drain the node, then 'nvidia-smi --gpu-reset -i {bus}' on it, or restart it"
# Throttle reasons that the hardware sets to protect itself. The driver sets the other one.
_BY_HARDWARE = {
    "hw_slowdown": "check the node's power supply and cooling",
    "hw_thermal_slowdown": "the GPU is too hot: check the node's fans, air flow and coolant",
    "hw_power_brake_slowdown": "the machine's power supply limits it: check power supplies and their cables",
}
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
_NOTHING = {"none", "n/a", "not supported", "not available", ""}
_WELL = {"healthy", "full", "false", "no"}
# Texts in fields that the driver could not read from the GPU.
_LOST = re.compile(r"\[?(?:GPU is lost|GPU requires (?:a )?reset|Unknown Error|ERR!)\]?", re.IGNORECASE)


def check_gpus(result: CommandResult | None, promised: int) -> Iterator[Finding]:
    """Check nvidia-smi's answer. `promised` is the number of GPUs that Slurm gives to jobs."""
    if result is None:
        return
    smi = read_smi(result.output)
    first_line = next((line for line in result.output.splitlines() if line.strip()), "nothing")
    sentence = next((entry for entry in _SENTENCES if entry[0] in (smi.text if smi else result.output).lower()), None)
    if result.status is None:
        seen = "nvidia-smi does not answer: a GPU or its driver hangs"
        yield finding("error", DRIVER, seen, "see 'dmesg | grep -iE \"nvrm|xid\"' on the node, then restart it")
    elif sentence is not None:
        message = smi.text if smi else " ".join(result.output.split())
        yield finding("error", DRIVER, f"{sentence[1]} (nvidia-smi: {message[:200]!r})", sentence[2])
        yield from check_smi(smi, promised) if smi else ()
    elif result.status == 0 and smi is None and "<nvidia_smi_log" not in result.output:
        # It may be another release, or another program of that name: no fault of the GPUs.
        yield unjudged(HEALTH, f"nvidia-smi prints an unknown format: {first_line!r}", "run nvidia-smi on the node")
    elif smi is None:
        seen = f"nvidia-smi exits with status {result.status}: {first_line!r}"
        yield finding("error", DRIVER, seen, "run nvidia-smi on the node, and see 'dmesg | grep -i nvrm' there")
    else:
        yield from _beside(result.status, smi)
        yield from check_smi(smi, promised)


def _beside(status: int, smi: Smi) -> Iterator[Finding]:
    """Yield a finding for a bad status or a message beside an answer: a warning, unless nvidia-smi stopped half-way."""
    message = f": {smi.text[:200]!r}" if smi.text else ""
    if status and not smi.whole:
        seen = f"nvidia-smi stops with status {status} after {len(smi.gpus)} GPUs{message}"
        yield finding("error", DRIVER, seen, "see 'dmesg | grep -iE \"nvrm|xid\"' on the node, then restart it")
    elif not smi.whole:
        seen = f"nvidia-smi's answer is cut off after {len(smi.gpus)} GPUs"
        yield finding("warning", DRIVER, seen, "run nvidia-smi -q -x")
    elif "inforom is corrupted" in smi.text.lower():
        seen = smi.text[:200]
        yield finding("warning", DRIVER, seen, "jobs still run; have the GPU's InfoROM rewritten, or replace the GPU")
    elif status or message:
        seen = f"nvidia-smi exits with status {status}{message}"
        yield finding("warning", DRIVER, seen, "run nvidia-smi on the node")


def check_driver_count(promised: int, root: Path = Path("/")) -> Iterator[Finding]:
    """Check the number of GPUs in the driver's /proc files, which lack a GPU as soon as it falls off the bus."""
    folder = root / "proc/driver/nvidia/gpus"
    if not folder.is_dir():
        seen = f"{folder} does not exist: the NVIDIA driver is not loaded, or it is another one"
        yield unjudged(COUNT, seen, "see 'nvidia-smi'")
        return
    buses = sorted(path.name for path in folder.iterdir())
    if len(buses) < promised:
        seen = f"the driver has {len(buses)} of {promised} GPUs ({', '.join(buses) or 'none'})"
        yield finding("error", COUNT, seen, _MISSING)


def check_smi(smi: Smi, promised: int) -> Iterator[Finding]:
    jobs = [gpu for gpu in smi.gpus if field(gpu, "display_active") != "Enabled"]
    if smi.driver:
        yield finding("info", DRIVER, smi.driver)
    if smi.whole and len(jobs) < promised:
        buses = ", ".join(bus_of(gpu) or "?" for gpu in jobs) or "none"
        seen = f"nvidia-smi shows {len(jobs)} of {promised} GPUs ({buses})"
        yield finding("error", COUNT, seen, _MISSING)
    for gpu in jobs:
        yield from _check_gpu(gpu)


def _check_gpu(gpu: Element) -> Iterator[Finding]:
    bus = bus_of(gpu)
    where, reset = f"GPU {bus}", _RESET.format(bus=bus)
    if field(gpu, "mig_mode/current_mig") == "Enabled":
        seen = f"{where}: MIG is on, and NCCL uses at most one part of the GPU"
        yield finding("error", HEALTH, seen, f"turn it off: 'nvidia-smi -i {bus} -mig 0' on the node")
    for path, word in _BROKEN.items():
        if field(gpu, path) == "Yes":
            yield finding("error", HEALTH, f"{where}: {word}", "replace the GPU")
    for path, word in _PENDING.items():
        if field(gpu, path) == "Yes":
            yield finding("error", HEALTH, f"{where}: a {word} is pending", reset)
    if new := memory_errors(gpu, "volatile"):
        seen = f"{where}: {new} memory errors that ECC could not correct since the driver was loaded"
        yield finding("error", HEALTH, seen, reset)
    elif ever := memory_errors(gpu, "aggregate"):
        seen = f"{where}: {ever} earlier memory errors that ECC could not correct, none of them new"
        yield finding("info", HEALTH, seen, "nothing to do unless the number grows")
    recovery = field(gpu, "gpu_recovery_action") or ""
    if re.search(r"reset|reboot|drain|replace", recovery, re.IGNORECASE):
        yield finding("error", HEALTH, f"{where}: its driver asks for {recovery!r}", reset)
    elif recovery.lower() not in _NOTHING and "deprecated" not in recovery:
        yield unjudged(HEALTH, f"{where}: its driver reports an unknown recovery action {recovery!r}", reset)
    for word in sorted({text for element in gpu.iter() if _LOST.fullmatch(text := (element.text or "").strip())}):
        severe = "lost" in word.lower() or "reset" in word.lower()
        yield finding("error" if severe else "warning", HEALTH, f"{where}: nvidia-smi reports {word!r}", reset)
    for reason in throttle_reasons(gpu):
        if reason in _BY_HARDWARE:
            yield finding("error", HEALTH, f"{where}: clocks are reduced by {reason}", _BY_HARDWARE[reason])
        else:
            yield finding("warning", HEALTH, f"{where}: clocks are reduced by {reason}", "check the node's cooling")
    state, status = field(gpu, "fabric/state") or "", field(gpu, "fabric/status") or ""
    if state.lower() not in _NOTHING and not _registered(state, status):
        fabric = ", ".join(filter(None, (state, status)))
        remedy = "'systemctl restart nvidia-fabricmanager', and see its log; on a virtual machine it runs on the host"
        yield finding("error", FABRIC, f"{where}: not registered with the NVLink fabric ({fabric})", remedy)
    if unwell := dict(_not_well(gpu.find("fabric/health"))):
        # A GPU that is only partly unhealthy keeps working, but slower.
        severely = (
            unwell.get("summary", "").lower() == "unhealthy" or unwell.get("route_unhealthy", "").lower() == "true"
        )
        text = ", ".join(f"{name.replace('_', ' ')} {word}" for name, word in unwell.items())
        seen = f"{where}: its NVLink fabric is unhealthy: {text}"
        remedy = f"see nvidia-fabricmanager's log and 'dmesg | grep -i sxid'; {reset}"
        yield finding("error" if severely else "warning", FABRIC, seen, remedy)


def _not_well(health: Element | None) -> Iterator[tuple[str, str]]:
    for element in health if health is not None else ():
        text = (element.text or "").strip()
        # For partitions of a rack: a single machine has none and is healthy.
        if element.tag != "partition_assigned" and text.lower() not in _NOTHING | _WELL and TEXT.fullmatch(text):
            yield element.tag, text


def _registered(state: str, status: str) -> bool:
    return state.lower() == "completed" and status.lower() in ("success", "nvml_success", "n/a", "")


def check_fabric_manager(result: CommandResult | None, switches: int) -> Iterator[Finding]:
    if not switches or result is None or "active" in result.output.split("\n"):
        return
    state = next((line for line in reversed(result.output.split("\n")) if line.strip()), "no answer")
    if result.status in NO_ANSWER:
        yield unjudged(FABRIC, f"{switches} NVSwitches, but systemctl does not answer: {state}")
        return
    # Only a warning while it starts, because jobs wait for it.
    seen = f"{switches} NVSwitches, but nvidia-fabricmanager is {state}"
    remedy = "'systemctl enable --now nvidia-fabricmanager'; its package must have the driver's version"
    yield finding("warning" if state in ("activating", "reloading") else "error", FABRIC, seen, remedy)


def read_preflight(output: str) -> dict[str, list[Finding]]:
    """Return the findings by node, worst first, from the job's output. Malformed output raises nothing.

    Add one to each node whose driver differs from that of most nodes.
    """
    findings = read_lines(output)
    drivers = {
        node: item["seen"]
        for node, items in findings.items()
        for item in items
        if item["check"] == DRIVER and item["severity"] == "info"
    }
    counts = Counter(drivers.values())
    # If drivers are equally common, the newest one is the expected one.
    expected = max(counts, key=lambda version: (counts[version], numbers(version)), default="")
    extra = {
        node: finding(
            "error", DRIVER, f"{version} here, {expected} on {counts[expected]} of {len(drivers)} nodes",
            "install the same driver on all nodes, and restart each node that you change",
        )
        for node, version in drivers.items()
        if version != expected
    }  # fmt: skip
    return {node: worst_first([*([extra[node]] if node in extra else []), *items]) for node, items in findings.items()}
