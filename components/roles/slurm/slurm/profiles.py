"""The ways to run jobs on a machine: with cgroups, by processes alone, and on a pod. Hosts use this module too.

slurm.conf and cgroup.conf include each machine's own file, if the machines differ. Each machine writes its file in its
join, before the head node has its profile here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

# The machine's own files.
OWN_SLURM_CONF, OWN_CGROUP_CONF = "/etc/tailrack/slurm.conf", "/etc/tailrack/cgroup.conf"
OWN_GRES_CONF = "/etc/tailrack/gres.conf"
# A comment in slurm.conf.
NOT_CONFINED = "# Nothing confines a job here. End one that uses more memory than it was given, once Slurm notices."
# The keys of slurm.conf, in lower case.
KEYS = frozenset({"proctracktype", "taskplugin", "jobacctgathertype", "jobacctgatherfrequency", "jobacctgatherparams"})
Parts = Mapping[str, Mapping[str, str]]
INCLUDE = f"Include {OWN_SLURM_CONF}"
CGROUP_CONF = f"# Written by tailrack. Machines differ, so each has its own file.\nInclude {OWN_CGROUP_CONF}"
# slurmctld reports every node whose own file differs from the head node's, unless it compares no files.
_DEBUG_FLAG = "NO_CONF_HASH"
# Give each job a step that logins can join. Machines with cgroups need it, also after the head node has lost its own.
_PROLOG_FLAG = "Contain"


@dataclass(frozen=True)
class Profile:
    """One way to run jobs on a machine: lines of slurm.conf and cgroup.conf.

    accounted   more lines of slurm.conf if the cluster has accounting
    """

    name: str
    slurm: tuple[str, ...]
    cgroup: tuple[str, ...]
    accounted: tuple[str, ...] = ()


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


CGROUPS = Profile(
    "cgroups",
    slurm=("ProctrackType=proctrack/cgroup", "TaskPlugin=task/affinity,task/cgroup"),
    cgroup=("CgroupPlugin=autodetect", "ConstrainCores=yes", "ConstrainDevices=yes", "ConstrainRAMSpace=yes"),
    accounted=("JobAcctGatherType=jobacct_gather/cgroup",),
)


def own_profiles(slurm_conf: str, nodes: Parts) -> frozenset[str]:
    """Return the profiles of machines that need their own files; none if slurm.conf has the keys of all machines."""
    profiles = frozenset(part["profile"].strip() for part in nodes.values() if "profile" in part)
    common = _profile_of(slurm_conf)
    return frozenset() if not common or profiles <= {common} else profiles


def with_own_keys(slurm_conf: str, profiles: Collection[str]) -> str:
    """Return a slurm.conf that includes each machine's own keys. The user's keys follow the partitions, and stay."""
    ours, partitions, rest = slurm_conf.partition("\nPartitionName=")
    lines: list[str] = []
    for line in ours.split("\n"):
        if not _is_own(line):
            lines.append(line)
        elif INCLUDE not in lines:
            lines.append(INCLUDE)
    lines = "".join(["\n".join(lines), partitions, rest]).split("\n")
    _add_flag(lines, "DebugFlags", _DEBUG_FLAG)
    if CGROUPS.name in profiles:
        _add_flag(lines, "PrologFlags", _PROLOG_FLAG)
    return "\n".join(lines)


def without_own_keys(lines: list[str]) -> list[str]:
    """Return lines that roles add to slurm.conf, without the keys that each machine has in its own file."""
    return [line for line in lines if not _is_own(line)]


def _profile_of(slurm_conf: str) -> str:
    """Return the name of the profile that a cluster's slurm.conf gives all machines."""
    lines = slurm_conf.splitlines()
    return next((profile.name for profile in (CGROUPS, PROCESSES) if profile.slurm[0] in lines), "")


def _is_own(line: str) -> bool:
    return line.partition("=")[0].lower() in KEYS or line == NOT_CONFINED


def _add_flag(lines: list[str], key: str, flag: str) -> None:
    """Add a flag to a key of slurm.conf, in place; after the machines' own keys if the key is missing."""
    for number, line in enumerate(lines):
        name, _, value = line.partition("=")
        if name.lower() == key.lower():
            flags = value.strip('"').split(",")
            if flag.lower() not in map(str.lower, flags):
                lines[number] = f"{name}={','.join([*flags, flag])}"
            return
    lines.insert(lines.index(INCLUDE) + 1, f"{key}={flag}")
