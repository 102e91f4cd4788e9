"""Jobs that hang: found by GPUs that wait and by NCCL's RAS subsystem, reported with the ranks that are behind.

Role usage samples the GPUs of jobs once a minute and calls watch.py. `tailrack why` shows what find.py notes.
"""

from __future__ import annotations

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.job_hangs.host import FINDER
from components.roles.program import launcher
from components.roles.role import Role
from components.roles.usage.role import HAS_GPUS


def role(settings: ClusterSettings) -> Role:
    """Return the role, also where it is off: its phases then remove it."""
    hangs = settings.job_hangs
    find = Task("job-hangs", (FINDER,), limit=110, settings=(HAS_GPUS, "Nice=10"))
    return Role(
        "job_hangs",
        after=("usage", "job_reports"),
        tasks={"services": (find,)} if hangs else {},
        values={"JOB_HANGS_MINUTES": hangs.minutes if hangs else 0},
        texts={
            "JOB_HANGS_ASK_RAS": launcher("ask-ras"),
            "JOB_HANGS_ANSWER": launcher("job-hangs-here"),
            "JOB_HANGS_FINDER": launcher("job-hangs"),
        },
    )
