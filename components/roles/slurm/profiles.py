"""The ways to run jobs on a machine: with cgroups, by processes alone, and on a pod. Hosts use this module too."""

from __future__ import annotations

from dataclasses import dataclass, replace

# The machine's own files.
OWN_SLURM_CONF, OWN_CGROUP_CONF = "/etc/tailrack/slurm.conf", "/etc/tailrack/cgroup.conf"
# A comment in slurm.conf.
NOT_CONFINED = "# Nothing confines a job here. End one that uses more memory than it was given, once Slurm notices."
# The keys of slurm.conf, in lower case.
KEYS = frozenset({"proctracktype", "taskplugin", "jobacctgathertype", "jobacctgatherfrequency", "jobacctgatherparams"})


@dataclass(frozen=True)
class Profile:
    """One way to run jobs on a machine: lines of slurm.conf and cgroup.conf.

    accounted   more lines of slurm.conf if the cluster has accounting
    """

    name: str
    slurm: tuple[str, ...]
    cgroup: tuple[str, ...]
    accounted: tuple[str, ...] = ()


CGROUPS = Profile(
    "cgroups",
    slurm=("ProctrackType=proctrack/cgroup", "TaskPlugin=task/affinity,task/cgroup"),
    cgroup=("CgroupPlugin=autodetect", "ConstrainCores=yes", "ConstrainDevices=yes", "ConstrainRAMSpace=yes"),
    accounted=("JobAcctGatherType=jobacct_gather/cgroup",),
)
PROCESSES = Profile(
    "processes",
    slurm=(
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        NOT_CONFINED,
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=5",
        "JobAcctGatherParams=OverMemoryKill,UsePss",
    ),
    cgroup=(
        "# systemd has no cgroup controllers on these machines, so Slurm tracks jobs by their processes.",
        "CgroupPlugin=disabled",
    ),
)

# Without the capability to trace processes, root of a pod cannot read the shares of memory that UsePss needs, and Slurm
# would count nothing.
PODS = replace(
    PROCESSES,
    name="pods",
    slurm=tuple(line.removesuffix(",UsePss") for line in PROCESSES.slurm),
    cgroup=("# A pod's cgroups are read-only.", "CgroupPlugin=disabled"),
)
