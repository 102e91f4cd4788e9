"""Set up GPUs for jobs at every boot, and collect their health for the preflight."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.log import note
from components.node.minute import begin_task
from components.node.run import run, succeeds
from components.node.step.step import Step
from components.node.systemd import UNITS
from components.roles.gpu.remove import (
    HEALTH_PROGRAM,
    PERSISTENCE_WAS_OFF,
    PROGRAM,
    ROCE_PROGRAM,
    ROCE_UNIT,
    UNIT,
    remove_gpu_units,
    remove_roce_unit,
)

_PERSISTENCE = "nvidia-persistenced.service"


@dataclass(frozen=True)
class Gpus:
    """A node's GPUs and its files.

    node_gpu_count                    from the check step; 0 without GPUs
    gpu_boot_program, gpu_boot_unit   the program that runs at boot before slurmd
    gpu_roce_apply                    whether to set up RoCE ports (fabric.roce.apply)
    gpu_health_program, ...           the program that collects the health
    """

    node_gpu_count: int
    gpu_boot_program: str
    gpu_boot_unit: str
    gpu_roce_apply: bool
    gpu_roce_program: str
    gpu_roce_unit: str
    gpu_health_program: str


def compute(step: Step, values: Gpus) -> None:
    """Set up what the node has, and remove what it no longer has."""
    if values.gpu_roce_apply:
        _set_roce_up(values)
    else:
        remove_roce_unit()
    if values.node_gpu_count:
        _set_gpus_up(values)
        # Do not wait: it takes seconds, or a minute on a machine whose GPUs hang.
        step.later.append(lambda: begin_task("health"))
    else:
        remove_gpu_units()


def _set_roce_up(values: Gpus) -> None:
    files.write(ROCE_PROGRAM, values.gpu_roce_program, 0o755)
    files.write(f"{UNITS}/{ROCE_UNIT}", values.gpu_roce_unit)
    systemd.reload(ROCE_UNIT)
    systemd.enable(ROCE_UNIT)
    # At every run of the step, because a port's settings may have changed.
    run("systemctl", "restart", ROCE_UNIT)


def _set_gpus_up(values: Gpus) -> None:
    files.write_all(
        [
            File(PROGRAM, values.gpu_boot_program, 0o755),
            File(HEALTH_PROGRAM, values.gpu_health_program, 0o755),
            File(f"{UNITS}/{UNIT}", values.gpu_boot_unit),
        ]
    )
    systemd.reload(UNIT)
    _keep_driver_loaded()
    systemd.enable(UNIT, now=True)


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
