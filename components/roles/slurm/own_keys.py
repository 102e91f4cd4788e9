"""Let slurm.conf and cgroup.conf include each machine's own file (machine_keys.py), if the machines differ.

A machine without that file could not read slurm.conf. Each machine writes it in its join, before the head node has its
profile here; nodes of a stack that an earlier release set up last have none. While there are such nodes, slurm.conf
stays as it is, and register.py refuses nodes that cannot run with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from components.node import files
from components.node.failure import Failure
from components.roles.slurm.paths import NODES
from components.roles.slurm.profiles import (
    CGROUPS,
    KEYS,
    NOT_CONFINED,
    OWN_CGROUP_CONF,
    OWN_SLURM_CONF,
    PROCESSES,
)

Parts = Mapping[str, Mapping[str, str]]

INCLUDE = f"Include {OWN_SLURM_CONF}"
CGROUP_CONF = f"# Written by tailrack. Machines differ, so each has its own file.\nInclude {OWN_CGROUP_CONF}"
# slurmctld reports every node whose own file differs from the head node's, unless it compares no files.
_DEBUG_FLAG = "NO_CONF_HASH"
# Give each job a step that logins can join. Machines with cgroups need it, also after the head node has lost its own.
_PROLOG_FLAG = "Contain"


def own_profiles(slurm_conf: str, nodes: Parts) -> frozenset[str]:
    """Return the profiles of machines that need their own files; none if slurm.conf has the keys of all machines."""
    profiles = frozenset(part["profile"].strip() for part in nodes.values() if "profile" in part)
    common = _profile_of(slurm_conf)
    return frozenset() if not common or profiles <= {common} or _unprepared(nodes) else profiles


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


def refuse_unprepared(host: str, slurm_conf: str, profile: str) -> None:
    """Raise Failure if a machine of a profile cannot join, because other nodes cannot have their own files yet.

    slurm_conf   the cluster's
    """
    if profile == CGROUPS.name or _profile_of(slurm_conf) != CGROUPS.name:
        return
    nodes = {name: part for name, part in files.read_parts(NODES, ["site", "profile", "owner"]).items() if name != host}
    if names := _unprepared(nodes):
        pools = ", ".join(sorted({nodes[name].get("owner", "").strip() for name in names} - {""}))
        raise Failure(
            f"cgroups cannot confine jobs on {host}, and an earlier release of tailrack set up nodes that cannot be in "
            f"one cluster with such a machine: {', '.join(names)}",
            f"run up of {f'the pools {pools}' if pools else 'this stack'} with this release first",
        )


def refuse_unprepared_members(slurm_conf: str) -> None:
    """Raise Failure if the present nodes cannot run with the cluster's new slurm.conf."""
    for host, part in files.read_parts(NODES, ["profile"]).items():
        if "profile" in part:
            refuse_unprepared(host, slurm_conf, part["profile"].strip())


def _unprepared(nodes: Parts) -> list[str]:
    """Return the names of members without a profile, and so without their own files."""
    return sorted(name for name, part in nodes.items() if "site" in part and "profile" not in part)


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
