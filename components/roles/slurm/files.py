"""slurm.conf and its kin, for a configless cluster of dynamic nodes that speaks over the tailnet only.

They know no node: what a node adds is in fragment.py, and files.sh puts the two together on the head node. Settings and
their reasons are in templates/slurm.conf.j2; sources: `man slurm.conf`, and measurements noted in
docs/decisions/0003-slurm-over-a-tailnet.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from components.roles.cluster_settings import ClusterSettings
from components.roles.render import render
from components.roles.role import JOINED, Role
from components.roles.slurm.fragment import node_set_lines, site_node_set
from components.settings.types import word_set

# As many nodes as a cluster may have: slurmctld registers no more. Room for one costs it some 50 bytes (24.11.5: 9.7 MB
# with 1,024, 10.4 MB with this many). The tree of its messages is as wide, because a dynamic node may be behind a relay
# and should not forward for others.
MAX_NODE_COUNT = 16384

# Seconds until slurmctld gives up a node that says nothing: no outage of five minutes costs a job. Its arithmetic is in
# tests/slurm_silence.py.
SLURMD_TIMEOUT = 480

# What slurmctld runs to send mail about jobs (role.py brings it).
MAIL_PROGRAM = "/usr/local/sbin/tailrack-mail"

_WRITTEN = "# Written by tailrack."
# Keys that slurm.conf has once for each of what they name.
_REPEATED = word_set("NodeSet PartitionName")

# Keys of slurm.conf that reach the processes of a job: which cores they get, their limits, what runs before them.
# Time limits, priorities, logging and so on change no figure.
MEASURED_SETTINGS = word_set(
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
    """Return slurm.conf, in which Slurm wants each key once.

    Of what roles add to a list, and the user, it has all; else the user's value takes the place of ours. That no user
    sets what a role needs alone, `refused_keys` has seen. Raises ValueError where two roles set one key.
    """
    text = render(
        "roles/slurm/templates/slurm.conf.j2",
        cluster=settings.cluster,
        head=settings.head,
        head_address=head_address,
        cgroups=cgroups,
        site_lines=[line for site in sites for line in node_set_lines(site_node_set(site), site)],
        partitions=[
            (partition.name, ",".join(map(site_node_set, partition.sites)), partition.max_time)
            for partition in settings.slurm.partitions
        ],
        role_keys=of_roles(roles),
        max_node_count=MAX_NODE_COUNT,
        slurmd_timeout=SLURMD_TIMEOUT,
        mail_program=MAIL_PROGRAM,
    )
    own = {key.lower(): (key, value) for key, value in settings.slurm.settings.items()}
    lines: list[str] = []
    places: dict[str, int] = {}
    for line in text.splitlines():
        key, is_key, value = line.partition("=")
        if key in places and key in JOINED:
            lines[places[key]] = f"{key}={_joined(lines[places[key]].partition('=')[2], value)}"
            continue
        if key in places and key not in _REPEATED:
            raise ValueError(f"{key} of slurm.conf is set by role slurm, and by another role")
        if is_key and key in JOINED:
            line = f"{key}={_joined(value, own.pop(key.lower(), ('', ''))[1])}"
        elif key.lower() in own:
            continue
        if is_key and not line.startswith("#"):
            places[key] = len(lines)
        lines.append(line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in sorted(own.values()))])


def of_roles(roles: Sequence[Role]) -> dict[str, str]:
    """Return the keys of slurm.conf that roles need. Raises ValueError where two set one that is no list."""
    found: dict[str, str] = {}
    for role in roles:
        for key, needed in role.slurm_conf.items():
            if key in found and key not in JOINED:
                raise ValueError(f"{key} of slurm.conf is set by role {role.name}, and by another role")
            found[key] = _joined(found.get(key, ""), needed.value)
    return found


def _joined(*lists: str) -> str:
    words = [word for text in lists for word in text.strip('"').split(",") if word]
    return ",".join(dict.fromkeys(words))


def refused_keys(settings: ClusterSettings, roles: Sequence[Role]) -> Iterator[tuple[str, str]]:
    """Yield the user's keys of slurm.conf that a role needs to be its own, and what the user's value would break."""
    needed = {key.lower(): of for role in roles for key, of in role.slurm_conf.items() if key not in JOINED}
    for key in settings.slurm.settings:
        if key.lower() in needed:
            yield key, needed[key.lower()].breaks


# Header names of the cluster's own files.
FILES = (
    *("SLURM_SLURM_CONF", "SLURM_GRES_CONF", "SLURM_TOPOLOGY_CONF"),
    *("SLURM_CGROUP_CONF", "SLURM_MPI_CONF", "SLURM_JOB_SUBMIT_LUA"),
)


def controller_files(
    settings: ClusterSettings, roles: Sequence[Role], sites: Sequence[str], head_address: str, cgroups: bool
) -> Mapping[str, str]:
    """Return the cluster's own files as header values by name, those of FILES: `SLURM_SLURM_CONF` for slurm.conf.

    sites     names of the stack's sites
    cgroups   whether jobs are confined by cgroups; false only where machines give systemd no controllers
    """
    return {
        "SLURM_SLURM_CONF": slurm_conf(settings, roles, sites, head_address, cgroups),
        # Of each machine its own (join.sh).
        "SLURM_GRES_CONF": f"{_WRITTEN}\nInclude /etc/tailrack/gres.conf",
        "SLURM_TOPOLOGY_CONF": f"{_WRITTEN} A site is a switch: fast inside, the tailnet between.",
        "SLURM_CGROUP_CONF": render("roles/slurm/templates/cgroup.conf.j2", cgroups=cgroups),
        "SLURM_MPI_CONF": render("roles/slurm/templates/mpi.conf.j2"),
        "SLURM_JOB_SUBMIT_LUA": render("roles/slurm/templates/job_submit.lua.j2", users=settings.users),
    }
