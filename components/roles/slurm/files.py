"""slurm.conf and its kin, for a configless cluster of dynamic nodes that speaks over the tailnet only.

They know no node: what a node adds is in fragment.py, and files.sh puts the two together on the head node. Settings and
their reasons are in templates/slurm.conf.j2; sources: `man slurm.conf`, and measurements noted in
docs/decisions/0003-slurm-over-a-tailnet.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.roles.cluster_settings import ClusterSettings
from components.roles.render import render
from components.roles.role import Role
from components.roles.slurm.fragment import node_set_lines, site_node_set
from components.roles.slurm.silence import SLURMD_TIMEOUT
from components.settings.types import words

# Slurm keeps this many node records ready; the tree of its messages is as wide, because a dynamic node may be behind
# a relay and should not forward for others.
MAX_NODE_COUNT = 1024

_WRITTEN = "# Written by tailrack."

# Keys of slurm.conf that reach the processes of a job: which cores they get, their limits, what runs before them.
# Time limits, priorities, logging and so on change no figure.
MEASURED_SETTINGS = words(
    """cpufreqdef cpufreqgovernors epilog launchparameters mpiparams prolog prologflags propagateresourcelimits
    propagateresourcelimitsexcept selecttype selecttypeparameters switchtype taskpluginparam taskprolog"""
)


def measured_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of the user's keys of slurm.conf that reach the processes of a job, in lower case."""
    own = {key.lower(): value for key, value in settings.items()}
    return {key: own[key] for key in sorted(own.keys() & MEASURED_SETTINGS)}


def slurm_conf(
    settings: ClusterSettings, roles: Sequence[Role], sites: Sequence[str], head_address: str, cgroups: bool
) -> str:
    """Return slurm.conf. A key the user sets takes the place of ours: Slurm wants each key once."""
    text = render(
        "roles/slurm/templates/slurm.conf.j2",
        cluster=settings.cluster,
        head=settings.head,
        head_address=head_address,
        cgroups=cgroups,
        role_keys={key: value for role in roles for key, value in role.slurm_conf.items()},
        site_lines=[line for site in sites for line in node_set_lines(site_node_set(site), site)],
        partitions=[
            (partition.name, ",".join(map(site_node_set, partition.sites)), partition.max_time)
            for partition in settings.slurm.partitions
        ],
        max_node_count=MAX_NODE_COUNT,
        slurmd_timeout=SLURMD_TIMEOUT,
    )
    own = {key.lower() for key in settings.slurm.settings}
    lines = [line for line in text.splitlines() if line.partition("=")[0].lower() not in own]
    return "\n".join([*lines, *(f"{key}={value}" for key, value in sorted(settings.slurm.settings.items()))])


def controller_files(
    settings: ClusterSettings, roles: Sequence[Role], sites: Sequence[str], head_address: str, cgroups: bool
) -> Mapping[str, str]:
    """Return the cluster's own files as header values by field: `slurm_conf` for slurm.conf.

    sites     names of the stack's sites
    cgroups   whether jobs are confined by cgroups; false only where machines give systemd no controllers
    """
    return {
        "slurm_conf": slurm_conf(settings, roles, sites, head_address, cgroups),
        "gres_conf": _WRITTEN,
        "topology_conf": f"{_WRITTEN} A site is a switch: fast inside, the tailnet between.",
        "cgroup_conf": render("roles/slurm/templates/cgroup.conf.j2", cgroups=cgroups),
        "mpi_conf": render("roles/slurm/templates/mpi.conf.j2"),
        "job_submit_lua": render("roles/slurm/templates/job_submit.lua.j2", users=settings.users),
    }
