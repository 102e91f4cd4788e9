"""The keys of slurm.conf and cgroup.conf in which machines may differ. A machine's profile decides them. Pure.

slurmctld serves one slurm.conf to all machines, but not a file that slurm.conf includes by its path: every machine
reads its own (src/common/parse_config.c), which its last step writes (host.py). slurm.conf includes it if machines
differ (profiles.py).

Only slurmd, slurmstepd and their plugins act on these keys (24.11 to 25.11). Keys that slurmctld or srun act on, such
as PrologFlags, must be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from components.roles.slurm.slurm.profiles import CGROUPS, PODS, PROCESSES, Profile

if TYPE_CHECKING:
    from components.roles.cluster_settings import ClusterSettings


def profile_of(facts: Mapping[str, Any], settings: ClusterSettings, head_cgroups: bool, *, pod: bool) -> Profile:
    """Return a machine's profile, from the facts of its check and the config.

    head_cgroups   whether cgroups confine jobs on the head node. If not, they confine none in the cluster
    """
    if pod:
        return PODS
    return CGROUPS if head_cgroups and (facts["cgroups"] or settings.slurm.cgroups) else PROCESSES


def machine_keys(
    facts: Mapping[str, Any], settings: ClusterSettings, head_cgroups: bool, *, pod: bool = False
) -> dict[str, Any]:
    """Return header values by name. The user's own keys (tailrack:slurm.settings) stay the same on all machines.

    node_profile       the profile's name
    node_confined      whether cgroups confine jobs on it
    node_slurm_keys    lines for slurm.conf
    node_cgroup_keys   lines for cgroup.conf
    """
    profile = profile_of(facts, settings, head_cgroups, pod=pod)
    users = {key.lower() for key in settings.slurm.settings}
    lines = (*profile.slurm, *(profile.accounted if settings.accounting.enabled else ()))
    return {
        "node_profile": profile.name,
        "node_confined": profile is CGROUPS,
        "node_slurm_keys": "\n".join(line for line in lines if line.partition("=")[0].lower() not in users),
        "node_cgroup_keys": "\n".join(profile.cgroup),
    }


def needs_cgroups(settings: ClusterSettings) -> str:
    """Return the first part of the config that needs cgroups on every machine; empty if nothing does.

    Slurm's programs do not start with such a key of slurm.conf on a machine whose own keys are others
    (src/common/read_config.c).
    """
    return next(_needing_cgroups(settings), "")


def _needing_cgroups(settings: ClusterSettings) -> Iterator[str]:
    if settings.slurm.cgroups:
        yield "tailrack:slurm.cgroups is true"
    needing = {
        "prologflags": ("x11",),
        "taskpluginparam": ("oomkillstep", "slurmdspecoverride"),
        "jobacctgathertype": ("jobacct_gather/cgroup",),
    }
    for key, value in settings.slurm.settings.items():
        items = value.strip('"').lower().split(",")
        for item in needing.get(key.lower(), ()):
            if item in items:
                yield f"tailrack:slurm.settings has {key}: {value}"
