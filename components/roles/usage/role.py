"""The use of GPUs by jobs: sampled on nodes while jobs have GPUs, recorded in Slurm's accounting at their end.

Role health has the scripts that note which GPUs Slurm gives a job (prolog-10-job, epilog-10-job). `tailrack usage`,
`tailrack why` and `sll` show the figures (samples.py).
"""

from __future__ import annotations

import json

from components.node.minute import Task
from components.roles.accounting.settings import UnusedGpus
from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import Role
from components.roles.slurm.folders import NODES, POOLS
from components.roles.usage.samples import JOBS, RECORDER, SAMPLER

# A cluster without GPUs pays one look at the parts of its nodes and elastic pools, which name the CPUs of each GPU.
HAS_GPUS = f"ExecCondition=/usr/bin/grep -qsr --include=gpu_cpus . {NODES} {POOLS}"
_RECORD = Task("job-gpu-use", (RECORDER,), limit=300, settings=(HAS_GPUS, "Nice=10"))
# The prolog writes JOBS; it is empty while no job has a GPU.
_SAMPLE = Task(
    "gpu-use", (SAMPLER,), limit=90, settings=("Nice=10", "NoNewPrivileges=yes", "ProtectHome=yes"), needs=JOBS
)


def role(settings: ClusterSettings) -> Role:
    """Return the role, also where it is off: its scripts then remove it. It needs the job scripts."""
    return Role(
        "usage",
        after=("accounting", "gpu", "health"),
        tasks={
            **({"compute": (_SAMPLE,)} if settings.health.enabled else {}),
            **({"services": (_RECORD,)} if settings.accounting.enabled and settings.health.enabled else {}),
        },
        values={
            # Nodes sample without accounting too, so that no node's step changes when it is switched on.
            "USAGE_SAMPLED": settings.health.enabled,
            "USAGE_RECORDED": settings.accounting.enabled and settings.health.enabled,
            "USAGE_UNUSED_GPUS": _limits(settings.accounting.unused_gpus),
        },
        texts={
            "USAGE_SAMPLER": launcher("gpu-use"),
            "USAGE_ANSWER": launcher("gpu-use", "answer"),
            "USAGE_RECORDER": launcher("job-gpu-use"),
        },
    )


def _limits(unused: UnusedGpus | None) -> str:
    """Return the limits as JSON (record.py); empty without any."""
    return json.dumps([unused.tell_minutes, unused.end_minutes, list(unused.exempt_qos)]) if unused else ""
