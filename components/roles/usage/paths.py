"""Paths of the record of GPU use. The prolog and epilog (role health) write JOBS and remove from it."""

from __future__ import annotations

from components.node.locks import PRIVATE
from components.roles.ssh_trust.ask import ANSWERS

# One file per job with GPUs on this node: its name is the job's id, its content SLURM_JOB_GPUS, as slurmd gives it.
JOBS = f"{PRIVATE}/gpu-jobs"
# One file per job: the samples so far, in JSON.
SAMPLES = f"{PRIVATE}/gpu-use"
# The GPUs without a figure of their power, once the log names them.
POWERLESS = f"{PRIVATE}/gpus-without-power"
SAMPLER = "/usr/local/lib/tailrack/gpu-use"
ANSWER = f"{ANSWERS}/gpu-use"
RECORDER = "/usr/local/lib/tailrack/job-gpu-use"
# On the head node, in JSON: the recorded text of each ended job that slurmctld may still replace.
RECORDED = f"{PRIVATE}/gpu-use-recorded"
# The limits for unused GPUs as JSON, and a line `number start` for each job that got the message.
UNUSED_GPUS = "/etc/tailrack/unused-gpus"
TOLD = f"{PRIVATE}/unused-gpus-told"
