"""A scratch folder for each job on its node's disk: created before the job, in TMPDIR, removed after it.

The same disk has a cache folder for each user, which stays.

Role health has the scripts that Slurm runs (prolog-45-scratch, epilog-90-scratch); role fabric's task-prolog sets
TMPDIR and the variables of caches. They read /etc/tailrack/scratch and scratch-caches, which this role writes.
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import File, Role, template
from components.roles.scratch.paths import CLEAN, UNITS


def role(settings: ClusterSettings) -> Role:
    """Return the role, for every node, so that nodes remove it when the config names no folder any more."""
    scratch = settings.scratch
    on = scratch.folder is not None
    return Role(
        "scratch",
        after=("health",),
        values={
            "SCRATCH_FOLDER": scratch.folder,
            "SCRATCH_CACHE_DAYS": scratch.cache_days if on else 0,
            "SCRATCH_CACHE_DISK_PERCENT": scratch.cache_disk_percent if on else 0,
        },
        # Job scripts copy checkpoints off the disk with them.
        packages={"compute": ("rsync",)} if on else {},
        wanted={"compute": ("rclone",)} if on else {},
        files={"compute": _files()} if on else {},
    )


def _files() -> tuple[File, ...]:
    return (
        File(CLEAN, launcher("scratch-clean"), "0755"),
        *(File(f"/etc/systemd/system/{unit}", template("scratch", unit)) for unit in UNITS),
    )
