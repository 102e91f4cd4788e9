"""GPUs: find them, give them to jobs as Slurm's gres `gpu`, set them up at boot, and check their health."""

from dataclasses import replace

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import list_of, matching, whole
from components.roles.gpu.gpu.host import HEALTH_PROGRAM, PROGRAM, ROCE_PROGRAM, ROCE_UNIT, UNIT
from components.roles.program import launcher
from components.roles.role import File, Role, SlurmKey, template, unit_like

# The limit for one node: NVIDIA's device files have lower numbers.
MOST_GPUS = 256

# Each of its checks has a time limit; a process that cannot be killed is left behind.
HEALTH_TASK = Task(
    "health",
    (HEALTH_PROGRAM,),
    seconds=900,
    limit=180,
    settings=("KillMode=process", "Nice=10"),
    needs=HEALTH_PROGRAM,
    at_once=True,
)

_BOOT = "multi-user.target"
_ABOUT = "Set up GPUs for slurmd and jobs: device files, a loaded driver, space in /dev/shm"
_AFTER = "systemd-modules-load.service nvidia-persistenced.service"
_UNIT = unit_like("boot", UNIT, description=_ABOUT, after=_AFTER, command=PROGRAM, wanted_by=f"{_BOOT} slurmd.service")
_ROCE_ABOUT = "Set up RoCE ports for the traffic of GPUs (fabric.roce.apply)"
_ROCE_AFTER = "network-online.target\nWants=network-online.target"
_ROCE_UNIT = unit_like(
    "boot", ROCE_UNIT, description=_ROCE_ABOUT, after=_ROCE_AFTER, command=ROCE_PROGRAM, wanted_by=_BOOT
)


def role(settings: ClusterSettings) -> Role:
    """Return the role. A node's GPUs are in its lines of Slurm's files (role slurm, node_lines.py)."""
    collector = File(HEALTH_PROGRAM, launcher("gpu-health"), "0755")
    return Role(
        "gpu",
        after=("machine",),
        on_pods=("check",),
        values={"roce_apply": settings.fabric.roce.apply},
        files={
            "compute": (
                *((_program(ROCE_PROGRAM), _ROCE_UNIT) if settings.fabric.roce.apply else ()),
                *(replace(file, needs="node_gpu_count") for file in (_program(PROGRAM), _UNIT, collector)),
            ),
            "pod": (replace(collector, needs="node_gpu_count"),),
        },
        tasks={"compute": (HEALTH_TASK,)},
        facts={
            "check": {
                "gpus": whole(0, MOST_GPUS),
                "gpu_kind": matching(r"|[a-z][a-z0-9-]{0,40}"),
                "gpu_devices": _device_numbers,
                "gpu_memory_mb": whole(0, 2**31),
                "gpu_driver": matching(r"|[0-9][0-9A-Za-z.-]{0,40}"),
                "gpu_nvlinks": whole(0, 64),
            }
        },
        slurm_conf={
            "SelectType": SlurmKey("select/cons_tres", "jobs could not request GPUs"),
            "GresTypes": SlurmKey("gpu", "jobs could not request GPUs"),
            # A job must not inherit this limit from the shell that submitted it.
            "PropagateResourceLimitsExcept": SlurmKey("MEMLOCK", "NCCL could not pin memory"),
        },
    )


def _program(path: str) -> File:
    return File(path, template("gpu", path.rpartition("/")[2]), "0755")


def _device_numbers(value: object) -> list[int]:
    """Read a sorted list of different device numbers."""
    numbers: list[int] = list_of(whole(0, MOST_GPUS - 1), MOST_GPUS)(value)
    if numbers != sorted(set(numbers)):
        raise ValueError
    return numbers
