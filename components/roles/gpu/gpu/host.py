"""GPUs of a machine: found, ready at boot, health-checked.

Each step of each node imports this module, so only the functions that ask nvidia-smi import its readers.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from components.node import files, kernel, services, systemd
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.minute import begin_task
from components.node.run import exists, run, succeeds
from components.node.step.step import Step
from components.validation.preflight.links import DISPLAYS, PCI, SWITCHES, nvidia_devices

PROGRAM, HEALTH_PROGRAM, ROCE_PROGRAM = (f"/usr/local/sbin/tailrack-{name}" for name in ("gpu", "health", "roce"))
UNIT, ROCE_UNIT = "tailrack-gpu.service", "tailrack-roce.service"
# This file exists if the daemon was off before the cluster.
PERSISTENCE_WAS_OFF = f"{STATE_DIR}/persistence-was-off"
_HEALTH = "/run/tailrack/health.json"
# The status of nvidia-smi if it finds no GPU.
_NO_GPU = 6
_PERSISTENCE = "nvidia-persistenced.service"
_SERVICE = "tailrack-health"
# As often as the task of other machines.
_PROGRAM = f"""#!/bin/sh
# Written by tailrack.
exec 2>&1
while :; do
    {HEALTH_PROGRAM}
    sleep 900
done"""


def leave(step: Step) -> None:
    """Turn the driver's daemon off again if it was off before the cluster."""
    if files.exists(PERSISTENCE_WAS_OFF):
        run("systemctl", "disable", "-q", "--now", "nvidia-persistenced")
        files.remove(PERSISTENCE_WAS_OFF)


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi shows it.

    minor    the number of its device file
    bus      its PCI address
    name     its product name
    kind     its name for Slurm and the config
    memory   in MiB
    """

    minor: str
    bus: str
    name: str
    kind: str
    memory: int
    has_mig: bool
    has_display: bool


@dataclass(frozen=True)
class Choice:
    """The GPUs for jobs, all of one kind, and why the others are none."""

    kind: str
    gpus: Sequence[Gpu]
    left_out: Sequence[str]


class _Machine:
    """A machine's NVIDIA devices: on the PCI bus, in /dev, and as nvidia-smi shows them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.bus = _on_the_bus(DISPLAYS)
        self.devices = {name for name in kernel.names_in("/dev") if re.match(r"nvidia[0-9]", name)}
        self.driver = ""
        self.gpus: list[Gpu] = []

    @cached_property
    def is_container(self) -> bool:
        return succeeds("systemd-detect-virt", "-cq")

    def has_gpus(self) -> bool:
        """Return whether there are GPUs. A container sees its host's bus, also the GPUs that it does not have."""
        return bool(self.devices) or (bool(self.bus) and exists("nvidia-smi") and not self.is_container)

    def query(self) -> None:
        """Ask nvidia-smi. Raises Failure if it is missing or fails although there are GPUs."""
        from components.roles.gpu.gpu import nvidia_smi
        from components.validation.preflight import collect

        if not exists("nvidia-smi"):
            if not self.bus and not self.devices:
                return
            raise Failure(
                "there is no nvidia-smi: the NVIDIA driver is not installed, so no job can use the GPUs (on the PCI "
                f"bus: {' '.join(self.bus)})",
                f"install the driver on {self.host} ('ubuntu-drivers install --gpgpu', or nvidia-driver of Debian's "
                "non-free), then run up again",
            )
        answer = collect.nvidia_smi("-q", "-x", as_nobody=self.is_container)
        if answer.status == 0:
            self.driver, self.gpus = nvidia_smi.read_gpus(answer.output)
            if not self.gpus:
                raise Failure(
                    f"nvidia-smi succeeds but lists no GPU (on the PCI bus: {' '.join(self.bus)})",
                    f"run 'nvidia-smi -q -x' on {self.host}",
                )
        elif answer.status != _NO_GPU or self.bus:
            raise nvidia_smi.failure_of(answer, " ".join(self.bus), self.host)

    def fewest_links(self) -> int:
        """Return the smallest number of active NVLinks of any GPU."""
        from components.roles.gpu.gpu import nvidia_smi
        from components.validation.preflight import collect

        answer = collect.nvidia_smi("nvlink", "-s", as_nobody=self.is_container)
        return nvidia_smi.fewest_links(answer.output) if answer.status == 0 else 0


def check(step: Step, node_gpu_kind: str, node_gpu_count: int) -> None:
    """Report the GPUs that jobs can use, and refuse others than those that the config promises, if it promises any."""
    machine = _Machine(step.host)
    if node_gpu_count or machine.has_gpus():
        machine.query()
    elif machine.bus:
        note(f"NVIDIA GPUs without a driver, which jobs cannot use: {' '.join(machine.bus)}")
    choice = _choose(machine, node_gpu_kind)
    _compare(machine, choice, node_gpu_kind, node_gpu_count)
    if choice.gpus:
        _require_fabric_manager(machine)
    if choice.left_out:
        note(f"GPUs that jobs cannot use: {'; '.join(choice.left_out)}")
    step.result("gpus", len(choice.gpus))
    step.result("gpu_kind", choice.kind if choice.gpus else "")
    step.result("gpu_devices", [int(gpu.minor) for gpu in choice.gpus])
    step.result("gpu_memory_mb", min((gpu.memory for gpu in choice.gpus), default=0))
    step.result("gpu_driver", machine.driver)
    step.result("gpu_nvlinks", machine.fewest_links() if choice.gpus else 0)


def _on_the_bus(kind: str) -> list[str]:
    return nvidia_devices(kind, Path(files.on_disk(str(PCI))))


def _choose(machine: _Machine, promised: str) -> Choice:
    """Choose GPUs with a device file and without a display.

    Their kind is the promised one, or the one with the most memory in total.
    """
    left_out, usable = [], []
    for gpu in machine.gpus:
        if not re.fullmatch(r"[0-9]{1,3}", gpu.minor) or f"nvidia{gpu.minor}" not in machine.devices:
            continue
        if gpu.has_display:
            left_out.append(f"GPU {gpu.minor} ({gpu.name} at {gpu.bus}) shows a display")
        else:
            usable.append(gpu)
    kind = promised or _largest_kind(usable)
    left_out += [f"GPU {gpu.minor} ({gpu.kind} at {gpu.bus}) is of another kind" for gpu in usable if gpu.kind != kind]
    chosen = [gpu for gpu in usable if gpu.kind == kind]
    for gpu in chosen:
        if gpu.has_mig:
            raise Failure(
                f"MIG is on at GPU {gpu.minor} ({gpu.bus}): its instances cannot communicate, and NCCL uses at most "
                "one of them",
                f"run 'nvidia-smi -i {gpu.minor} -mig 0' on {machine.host} (and restart it if that asks for it), or "
                "leave the machine out",
            )
    return Choice(kind, chosen, left_out)


def _largest_kind(gpus: Sequence[Gpu]) -> str:
    total = Counter[str]()
    for gpu in gpus:
        total[gpu.kind] += gpu.memory
    return max(total, key=lambda kind: total[kind], default="")


def _compare(machine: _Machine, choice: Choice, kind: str, count: int) -> None:
    """Raise Failure if the config promises other GPUs."""
    if count in (0, len(choice.gpus)):
        return
    promise = f"the config promises {count} GPUs ({kind})"
    kinds = sorted({gpu.kind for gpu in machine.gpus if gpu.name})
    if kinds and kind not in kinds:
        raise Failure(
            f"{promise}, but the GPUs here are {' '.join(kinds)}",
            f"set gpu: KIND:COUNT for {machine.host} in the config to match them, or leave gpu out",
        )
    # nvidia-smi prints a PCI address with a domain of eight digits.
    shown = {gpu.bus.lower().lstrip("0") for gpu in machine.gpus}
    lost = [bus for bus in machine.bus if bus.lower().lstrip("0") not in shown]
    parts = [*choice.left_out, *(f"{bus} is on the PCI bus, but nvidia-smi does not show it" for bus in lost)]
    raise Failure(
        "; ".join([f"{promise}, this machine shows {len(choice.gpus)} in /dev/nvidia*", *parts]),
        f"correct gpu: of {machine.host} in the config, or see nvidia-smi and 'dmesg | grep -i xid' there",
    )


def _require_fabric_manager(machine: _Machine) -> None:
    """Raise Failure if the fabric manager does not run: without it CUDA does not start on machines with NVSwitches."""
    if machine.is_container or not _on_the_bus(SWITCHES) or systemd.is_active("nvidia-fabricmanager"):
        return
    raise Failure(
        "the fabric manager does not run, and this machine has NVSwitches: CUDA would not start on its GPUs",
        f"run 'systemctl enable --now nvidia-fabricmanager' on {machine.host}; its package must have the driver's "
        f"version, {machine.driver}",
    )


def compute(step: Step, node_gpu_count: int, gpu_roce_apply: bool) -> None:
    """Set up what the node has.

    node_gpu_count   from `prepare`; 0 without GPUs
    gpu_roce_apply   whether to set up RoCE ports (fabric.roce.apply)
    """
    if gpu_roce_apply:
        systemd.reload(ROCE_UNIT)
        systemd.enable(ROCE_UNIT)
        # At every run of the step, because a port's settings may have changed.
        run("systemctl", "restart", ROCE_UNIT)
    if not node_gpu_count:
        leave(step)
        return
    step.declare(_HEALTH)
    systemd.reload(UNIT)
    _keep_driver_loaded()
    systemd.enable(UNIT, now=True)
    # Do not wait: it takes seconds, or a minute on a machine whose GPUs hang.
    step.later.append(lambda: begin_task("health"))


def _keep_driver_loaded() -> None:
    """Start the driver's daemon that keeps GPUs initialised, if its packages contain it."""
    if not succeeds("systemctl", "-q", "cat", _PERSISTENCE):
        return
    if not succeeds("systemctl", "-q", "is-enabled", "nvidia-persistenced"):
        files.write(PERSISTENCE_WAS_OFF, "")
    try:
        systemd.enable(_PERSISTENCE, now=True)
    except Failure:
        note("nvidia-persistenced does not start; see 'journalctl -u nvidia-persistenced'")


def pod(step: Step, node_gpu_count: int) -> None:
    """Run the collector."""
    if node_gpu_count:
        services.keep(_SERVICE, _PROGRAM, step.host, restart_it=step.changed)
