"""The use of GPUs by jobs: sampled on nodes while jobs have GPUs, recorded in Slurm's accounting at their end.

Role health has the scripts that note which GPUs Slurm gives a job (prolog-10-job, epilog-10-job). `tailrack usage`,
`tailrack why` and `sll` show the figures (samples.py).
"""

import json

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.monitoring.usage import samples
from components.roles.program import launcher
from components.roles.role import File, Role
from components.roles.slurm.accounting.settings import UnusedGpus
from components.roles.slurm.slurm.folders import NODES, POOLS

# A cluster without GPUs pays one look at the parts of its nodes and elastic pools, which name the CPUs of each GPU.
HAS_GPUS = f"ExecCondition=/usr/bin/grep -qsr --include=gpu_cpus . {NODES} {POOLS}"
_RECORD = Task("job-gpu-use", (samples.RECORDER,), limit=300, settings=(HAS_GPUS, "Nice=10"))
# The prolog writes JOBS; it is empty while no job has a GPU.
_SAMPLE = Task(
    "gpu-use",
    (samples.SAMPLER,),
    limit=90,
    settings=("Nice=10", "NoNewPrivileges=yes", "ProtectHome=yes"),
    needs=samples.JOBS,
)


def role(settings: ClusterSettings) -> Role:
    """Return the role, which needs the job scripts of role health. Nodes sample without accounting too."""
    sampled = settings.health.enabled
    recorded = sampled and settings.accounting.enabled
    sampler = (
        File(samples.SAMPLER, launcher("gpu-use"), "0755", needs="node_gpu_count"),
        File(samples.ANSWER, launcher("gpu-use", "answer"), "0755", needs="node_gpu_count"),
    )
    limits = _limits(settings.accounting.unused_gpus)
    recorder = (
        File(samples.RECORDER, launcher("job-gpu-use"), "0755"),
        *((File(samples.UNUSED_GPUS, limits),) if limits else ()),
    )
    return Role(
        "usage",
        after=("accounting", "gpu", "health"),
        tasks={**({"compute": (_SAMPLE,)} if sampled else {}), **({"services": (_RECORD,)} if recorded else {})},
        files={**({"compute": sampler} if sampled else {}), **({"services": recorder} if recorded else {})},
        made={"compute": (samples.POWERLESS, samples.SAMPLES), "services": (samples.RECORDED, samples.TOLD)},
    )


def _limits(unused: UnusedGpus | None) -> str:
    """Return the limits as JSON (job_gpu_use.py); empty without any."""
    return json.dumps([unused.tell_minutes, unused.end_minutes, list(unused.exempt_qos)]) if unused else ""
