"""A scratch folder for each job on its node's disk: created before the job, in TMPDIR, removed after it.

The same disk has a cache folder for each user, which stays.

Role health has the scripts that Slurm runs (prolog-45-scratch, epilog-90-scratch); role fabric's task-prolog sets
TMPDIR and the variables of caches. They read /etc/tailrack/scratch and scratch-caches, which this role writes.
"""

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import File, Role
from components.roles.storage.scratch.sweep import CLEAN

_CLEAN = Task(
    "scratch",
    (CLEAN,),
    seconds=3600,
    limit=21600,
    settings=("Nice=10", "IOSchedulingClass=idle"),
    at_once=True,
)


def role(settings: ClusterSettings) -> Role:
    """Return the role, for every node, so that nodes remove it when the config names no folder any more."""
    scratch = settings.scratch
    on = scratch.folder is not None
    return Role(
        "scratch",
        after=("health",),
        values={
            "folder": scratch.folder,
            "cache_days": scratch.cache_days if on else 0,
            "cache_disk_percent": scratch.cache_disk_percent if on else 0,
        },
        # Job scripts copy checkpoints off the disk with them.
        packages={"compute": ("rsync",)} if on else {},
        wanted={"compute": ("rclone",)} if on else {},
        files={"compute": (File(CLEAN, launcher("scratch-clean"), "0755"),)} if on else {},
        # Also where it is off, until the folders of an earlier config are gone.
        tasks={"compute": (_CLEAN,)},
    )
