"""GPU count and health, as nvidia-smi tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.health import NO_ANSWER, Look
from components.validation.preflight.smi import Gpu, Smi, read_smi

COUNT, DRIVER, HEALTH, FABRIC = "GPU count", "GPU driver", "GPU health", "fabric manager"
_MISSING = (
    "see 'dmesg | grep -i xid' and 'lspci -d 10de:' on the node and restart it; one that stays away has to be replaced"
)
_RESTART = "restart the node: its driver was updated under it"
_NOT_LOADED = "'modprobe nvidia' and 'dkms status' on the node say why it does not load (Secure Boot wants signed ones)"
# Sentences of nvidia-smi in the place of an answer or beside it: what they mean, and what helps.
_SENTENCES = (
    ("version mismatch", "the driver that runs is not the one that is installed", _RESTART),
    ("couldn't communicate", "the driver does not load", _NOT_LOADED),
    ("gpu is lost", "a GPU is lost", _MISSING),
    ("unable to determine the device handle", "a GPU is lost", _MISSING),
    ("no devices were found", "the driver finds no GPU", _MISSING),
    ("requires reset", "a GPU has to be reset", "drain the node and restart it"),
)
_CORRUPTED = "inforom is corrupted"
_RESET = "drain the node, then 'nvidia-smi --gpu-reset -i {bus}' on it, or restart it"
# Reasons by which hardware protects itself, and the one by which the driver does.
_BY_HARDWARE = {
    "hw_slowdown": "look at power supply and cooling of the node",
    "hw_thermal_slowdown": "it is too hot: look at fans, air and coolant of the node",
    "hw_power_brake_slowdown": "the machine's power supply holds it back: look at power supplies and their cables",
}


def check_gpus(look: Look | None, promised: int) -> Iterator[Finding]:
    """What nvidia-smi says of a node's GPUs. `promised` is how many Slurm gives to jobs."""
    if look is None:
        return
    smi = read_smi(look.output)
    said = next((line for line in look.output.splitlines() if line.strip()), "nothing")
    sentence = next((each for each in _SENTENCES if each[0] in (smi.words if smi else look.output).lower()), None)
    if look.status is None:
        yield finding(
            "error", DRIVER, "nvidia-smi gives no answer: a GPU or its driver hangs",
            "see 'dmesg | grep -iE \"nvrm|xid\"' on the node, then restart it",
        )  # fmt: skip
    elif sentence is not None:
        told = smi.words if smi else " ".join(look.output.split())
        yield finding("error", DRIVER, f"{sentence[1]} (nvidia-smi: {told[:200]!r})", sentence[2])
        yield from check_smi(smi, promised) if smi else ()
    elif look.status == 0 and smi is None and "<nvidia_smi_log" not in look.output:
        # Another release's, or another program of that name: no fault of the GPUs.
        yield unjudged(HEALTH, f"nvidia-smi says {said!r}, which is of no known form", "run nvidia-smi on the node")
    elif smi is None:
        yield finding(
            "error", DRIVER, f"nvidia-smi ends with status {look.status} and says {said!r}",
            "run nvidia-smi on the node, and see 'dmesg | grep -i nvrm' there",
        )  # fmt: skip
    else:
        yield from _beside(look.status, smi)
        yield from check_smi(smi, promised)


def _beside(status: int, smi: Smi) -> Iterator[Finding]:
    """A status or words that come with an answer: a warning, but where nvidia-smi stopped in the middle of it."""
    words = f" and says {smi.words[:200]!r}" if smi.words else ""
    if status and not smi.whole:
        yield finding(
            "error", DRIVER, f"nvidia-smi stops with status {status} after {len(smi.gpus)} GPUs{words}",
            "see 'dmesg | grep -iE \"nvrm|xid\"' on the node, then restart it",
        )  # fmt: skip
    elif not smi.whole:
        yield finding(
            "warning", DRIVER, f"nvidia-smi's answer is cut off after {len(smi.gpus)} GPUs", "run nvidia-smi -q -x"
        )
    elif _CORRUPTED in smi.words.lower():
        yield finding(
            "warning", DRIVER, smi.words[:200], "jobs run; have the GPU's InfoROM written again, or the GPU replaced"
        )
    elif status or words:
        yield finding("warning", DRIVER, f"nvidia-smi ends with status {status}{words}", "run nvidia-smi on the node")


def check_driver_count(promised: int, root: Path = Path("/")) -> Iterator[Finding]:
    """How many GPUs the driver has, as it says without being asked: one that fell off the bus is missing at once."""
    folder = root / "proc/driver/nvidia/gpus"
    if not folder.is_dir():
        yield unjudged(COUNT, f"{folder} is not there: no NVIDIA driver is loaded, or another one", "see 'nvidia-smi'")
        return
    there = sorted(path.name for path in folder.iterdir())
    if len(there) < promised:
        yield finding(
            "error", COUNT, f"the driver has {len(there)} of {promised} GPUs ({', '.join(there) or 'none'})", _MISSING
        )


def check_smi(smi: Smi, promised: int) -> Iterator[Finding]:
    """The same, of an answer that was read."""
    jobs = [gpu for gpu in smi.gpus if not gpu.display]
    if smi.driver:
        yield finding("info", DRIVER, smi.driver)
    if smi.whole and len(jobs) < promised:
        there = ", ".join(gpu.bus or "?" for gpu in jobs) or "none"
        yield finding(
            "error", COUNT, f"nvidia-smi shows {len(jobs)} of {promised} GPUs ({there})",
            _MISSING,
        )  # fmt: skip
    for gpu in jobs:
        yield from _check_gpu(gpu)


def _check_gpu(gpu: Gpu) -> Iterator[Finding]:
    where, reset = f"GPU {gpu.bus}", _RESET.format(bus=gpu.bus)
    if gpu.mig:
        yield finding(
            "error", HEALTH, f"{where}: MIG is on, and NCCL takes one part of it at most",
            f"'nvidia-smi -i {gpu.bus} -mig 0' on the node",
        )  # fmt: skip
    for word in gpu.broken:
        yield finding("error", HEALTH, f"{where}: {word}", "have the GPU replaced")
    for word in gpu.pending:
        yield finding("error", HEALTH, f"{where}: a {word} is pending", reset)
    if gpu.uncorrectable:
        seen = f"{where}: {gpu.uncorrectable} memory errors that ECC could not correct since the driver was loaded"
        yield finding("error", HEALTH, seen, reset)
    elif gpu.uncorrectable_ever:
        seen = (
            f"{where}: {gpu.uncorrectable_ever} memory errors of its life that ECC could not correct, none of them new"
        )
        yield finding("info", HEALTH, seen, "nothing, unless their number grows")
    if gpu.recovery and re.search(r"reset|reboot|drain|replace", gpu.recovery, re.IGNORECASE):
        yield finding("error", HEALTH, f"{where}: its driver asks for {gpu.recovery!r}", reset)
    elif gpu.recovery:
        yield unjudged(HEALTH, f"{where}: its driver says {gpu.recovery!r} of its recovery", reset)
    for word in gpu.lost:
        severe = "lost" in word.lower() or "reset" in word.lower()
        yield finding("error" if severe else "warning", HEALTH, f"{where}: nvidia-smi says {word!r} of it", reset)
    for reason in gpu.throttled:
        if reason in _BY_HARDWARE:
            yield finding("error", HEALTH, f"{where}: clocks held down by {reason}", _BY_HARDWARE[reason])
        else:
            yield finding("warning", HEALTH, f"{where}: clocks held down by {reason}", "look at the node's cooling")
    if gpu.fabric and not _registered(*gpu.fabric):
        yield finding(
            "error", FABRIC, f"{where}: not registered with the NVLink fabric ({', '.join(filter(None, gpu.fabric))})",
            "'systemctl restart nvidia-fabricmanager' and its log; on a virtual machine it runs on the host",
        )  # fmt: skip
    if gpu.health:
        # One that says only in part what it suffers from goes on, slower.
        severely = {("summary", "unhealthy"), ("route_unhealthy", "true")} & {
            (name, word.lower()) for name, word in gpu.health
        }
        words = ", ".join(f"{name.replace('_', ' ')} {word}" for name, word in gpu.health)
        yield finding(
            "error" if severely else "warning", FABRIC, f"{where}: its NVLink fabric is not well: {words}",
            f"see nvidia-fabricmanager's log and 'dmesg | grep -i sxid'; {reset}",
        )  # fmt: skip


def _registered(state: str, status: str) -> bool:
    return state.lower() == "completed" and status.lower() in ("success", "nvml_success", "n/a", "")


def check_fabric_manager(look: Look | None, switches: int) -> Iterator[Finding]:
    """The fabric manager of a machine that has NVSwitches on its own PCI bus."""
    if not switches or look is None or "active" in look.output.split("\n"):
        return
    state = next((line for line in reversed(look.output.split("\n")) if line.strip()), "no answer")
    if look.status in NO_ANSWER:
        yield unjudged(FABRIC, f"{switches} NVSwitches, and systemctl does not answer: {state}")
        return
    # While it starts, jobs wait for it.
    yield finding(
        "warning" if state in ("activating", "reloading") else "error", FABRIC,
        f"{switches} NVSwitches, and nvidia-fabricmanager is {state}",
        "'systemctl enable --now nvidia-fabricmanager'; its package must be of the driver's version",
    )  # fmt: skip
