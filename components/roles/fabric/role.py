"""The fabric of a site: found on each machine, proven between two, given to jobs by Slurm (docs/decisions/0012)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.fabric.facts import networks, proven
from components.roles.python_program import python_program
from components.roles.role import File, Role, SlurmKey, template

PROGRAM = "/usr/local/lib/tailrack/fabric.py"
TASK_PROLOG = "/usr/local/lib/tailrack/task-prolog"
# Where the head node asks a machine to prove its fabric; on the tailnet alone, like Slurm's own.
PORT = "6816"

# A program beside slurmctld, whose text comes with the head node's step, and its timer.
AGAIN = "tailrack-fabric-again"


def role(_settings: ClusterSettings) -> Role:
    """Its program is on every machine before the head node knows the machine: one that is there already is asked."""
    return Role(
        "fabric",
        after=("tailnet", "munge"),
        packages={"join": ("python3", "iproute2")},
        files={
            "join": (
                File(PROGRAM, python_program("components.roles.fabric.fabric", "sys.argv[1:]"), "0755"),
                File(TASK_PROLOG, template("fabric", "task-prolog"), "0755"),
                File("/etc/enroot/mounts.d/60-tailrack.fstab", template("fabric", "enroot.fstab")),
                File("/etc/enroot/hooks.d/60-tailrack.sh", template("fabric", "enroot-hook"), "0755"),
            ),
            "head": tuple(
                File(f"/etc/systemd/system/{AGAIN}.{kind}", template("fabric", f"{AGAIN}.{kind}"))
                for kind in ("service", "timer")
            ),
        },
        facts={"join": {"fabric": networks}, "head": {"fabric": proven}, "register": {"fabric": proven}},
        slurm_conf={
            "TaskProlog": SlurmKey(
                TASK_PROLOG, "jobs would not be told which network NCCL and MPI are to use, and use any or none"
            )
        },
        ports=(PORT,),
        serves=(PORT,),
    )
