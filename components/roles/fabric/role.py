"""The fabric of a site: found on each machine, proven between two, given to jobs by Slurm (docs/decisions/0012)."""

from __future__ import annotations

from components.cluster_settings import ClusterSettings
from components.roles.role import FOLDER, File, Role, template

PROGRAM = "/usr/local/lib/tailrack/fabric.py"
TASK_PROLOG = "/usr/local/lib/tailrack/task-prolog"
# Where the head node asks a machine to prove its fabric; on the tailnet alone, like Slurm's own.
PORT = "6816"


def role(_settings: ClusterSettings) -> Role:
    """Its program is on every machine before the head node knows the machine: one that is there already is asked."""
    text = (FOLDER / "fabric" / "fabric.py").read_text(encoding="utf-8").removesuffix("\n")
    return Role(
        "fabric",
        packages={"join": ("python3", "iproute2")},
        files={
            "join": (
                File(PROGRAM, text, "0755"),
                File(TASK_PROLOG, template("fabric", "task-prolog"), "0755"),
                File("/etc/enroot/mounts.d/60-tailrack.fstab", template("fabric", "enroot.fstab")),
                File("/etc/enroot/hooks.d/60-tailrack.sh", template("fabric", "enroot-hook"), "0755"),
            )
        },
        slurm_conf={"TaskProlog": TASK_PROLOG},
        ports=(PORT,),
        serves=(PORT,),
    )
