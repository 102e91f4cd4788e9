"""GPU count and health, as nvidia-smi tells it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.health import Look
from components.validation.preflight.smi import Gpu, Smi, read_smi

COUNT, DRIVER, HEALTH, FABRIC = "GPU count", "GPU driver", "GPU health", "fabric manager"
_MISSING = (
    "see 'dmesg | grep -i xid' and 'lspci -d 10de:' on the node and restart it; one that stays away has to be replaced"
)
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
    smi = read_smi(look.output) if look.status == 0 else None
    if look.status is None:
        yield finding(
            "error", DRIVER, "nvidia-smi gives no answer: a GPU or its driver hangs",
            "see 'dmesg | grep -iE \"nvrm|xid\"' on the node, then restart it",
        )  # fmt: skip
    elif look.status == 0 and smi is None and "<nvidia_smi_log" not in look.output:
        # Another release's, or another program of that name: no fault of the GPUs.
        said = next((line for line in look.output.splitlines() if line.strip()), "nothing")
        yield unjudged(HEALTH, f"nvidia-smi says {said!r}, which is of no known form", "run nvidia-smi on the node")
    elif smi is None:
        said = next((line for line in look.output.splitlines() if line.strip()), "nothing")
        yield finding(
            "error", DRIVER, f"nvidia-smi ends with status {look.status} and says {said!r}",
            "run nvidia-smi on the node; 'modprobe nvidia' and 'dkms status' say why a driver does not load",
        )  # fmt: skip
    else:
        yield from check_smi(smi, promised)


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
    if len(jobs) < promised:
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
    if gpu.recovery:
        yield finding("error", HEALTH, f"{where}: its driver asks for {gpu.recovery!r}", reset)
    for reason in gpu.throttled:
        if reason in _BY_HARDWARE:
            yield finding("error", HEALTH, f"{where}: clocks held down by {reason}", _BY_HARDWARE[reason])
        else:
            yield finding("warning", HEALTH, f"{where}: clocks held down by {reason}", "look at the node's cooling")
    if gpu.fabric and gpu.fabric != ("Completed", "Success"):
        yield finding(
            "error", FABRIC, f"{where}: not registered with the NVLink fabric ({', '.join(filter(None, gpu.fabric))})",
            "'systemctl restart nvidia-fabricmanager' and its log; on a virtual machine it runs on the host",
        )  # fmt: skip


def check_fabric_manager(look: Look | None, switches: int) -> Iterator[Finding]:
    """The fabric manager of a machine that has NVSwitches on its own PCI bus."""
    if not switches or look is None or look.output.strip() == "active":
        return
    state = look.output.strip().split("\n")[0] or "no answer"
    yield finding(
        "error", FABRIC, f"{switches} NVSwitches, and nvidia-fabricmanager is {state}",
        "'systemctl enable --now nvidia-fabricmanager'; its package must be of the driver's version",
    )  # fmt: skip
