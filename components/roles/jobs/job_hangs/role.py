"""Jobs that hang: found by GPUs that wait and by NCCL's RAS subsystem, reported with the ranks that are behind.

Role usage samples the GPUs of jobs once a minute and calls watch.py. `tailrack why` shows what find_hangs.py notes.
"""

from __future__ import annotations

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.jobs.job_hangs.find_hangs import FINDER, LIMITS, REPORTED
from components.roles.jobs.job_hangs.watch import ANSWER, ASK_RAS, MINUTES, STALLS
from components.roles.monitoring.usage.role import HAS_GPUS
from components.roles.program import launcher
from components.roles.role import File, Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None without job_hangs in the config."""
    if not (hangs := settings.job_hangs):
        return None
    minutes = str(hangs.minutes)
    find = Task("job-hangs", (FINDER,), limit=110, settings=(HAS_GPUS, "Nice=10"))
    return Role(
        "job_hangs",
        after=("usage", "job_reports"),
        tasks={"services": (find,)},
        files={
            "compute": (
                File(ASK_RAS, launcher("ask-ras"), "0755", needs="node_gpu_count"),
                File(ANSWER, launcher("job-hangs-here"), "0755", needs="node_gpu_count"),
                File(MINUTES, minutes, needs="node_gpu_count"),
            ),
            "services": (File(LIMITS, minutes), File(FINDER, launcher("job-hangs"), "0755")),
        },
        made={"compute": (STALLS,), "services": (REPORTED,)},
    )
