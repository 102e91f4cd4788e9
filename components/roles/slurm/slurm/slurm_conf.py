"""slurm.conf and related files, for a configless cluster of dynamic nodes that uses only the tailnet.

They contain no nodes: node_lines.py makes each node's part, and controller.py combines them on the head node. Settings
and their reasons are in templates/slurm.conf.j2; sources: `man slurm.conf`, and
docs/decisions/0003-slurm-over-a-tailnet.md.
"""

from collections.abc import Iterator, Mapping, Sequence

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import JOINED, Role, render
from components.roles.slurm.slurm.folders import MEASURE_PARTITION
from components.roles.slurm.slurm.node_lines import node_set_lines, site_node_set
from components.roles.slurm.slurm.profiles import CGROUPS, PROCESSES
from components.settings.types import word_set

# The most nodes that slurmctld registers. Each slot takes about 50 bytes (24.11.5: 9.7 MB with 1,024, 10.4 MB with this
# many). Its message tree is as wide, because a dynamic node may be behind a relay and should not forward for others.
MAX_NODE_COUNT = 16384

# Seconds until slurmctld gives up a silent node: an outage of five minutes costs no job. tests/slurm_silence.py has the
# arithmetic.
SLURMD_TIMEOUT = 480

# The program that slurmctld runs to send mail about jobs (role.py installs it).
MAIL_PROGRAM = "/usr/local/sbin/tailrack-mail"

_WRITTEN = "# Written by tailrack."
# Keys that slurm.conf may contain several times.
_REPEATED = word_set("NodeSet PartitionName")

# Keys of slurm.conf that affect the processes of a job: their cores, their limits, programs that run before them. Time
# limits, priorities, logging and so on change no measurement.
MEASURED_SETTINGS = word_set(
    """cpufreqdef cpufreqgovernors epilog launchparameters mpiparams prolog prologflags propagateresourcelimits
    propagateresourcelimitsexcept selecttypeparameters switchtype taskpluginparam taskprolog"""
)


def measured_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the user's keys of slurm.conf that affect the processes of a job, in lower case."""
    lowered = {key.lower(): value for key, value in settings.items()}
    return {key: lowered[key] for key in sorted(lowered.keys() & MEASURED_SETTINGS)}


def slurm_conf(
    settings: ClusterSettings, roles: Sequence[Role], sites: Sequence[str], head_address: str, cgroups: bool
) -> str:
    """Return slurm.conf, with each key once.

    Lists in JOINED contain the values of all roles and of the user; for other keys the user's value replaces ours.
    `refused_keys` has already rejected a user's value for a key that a role needs. Raise ValueError if two roles set
    the same key.
    """
    text = render(
        "roles/slurm/slurm/templates/slurm.conf.j2",
        cluster=settings.cluster,
        head=settings.head,
        head_address=head_address,
        cgroups=cgroups,
        profile=CGROUPS if cgroups else PROCESSES,
        site_lines=[line for site in sites for line in node_set_lines(site_node_set(site), site)],
        partitions=[
            (partition.name, ",".join(map(site_node_set, partition.sites)), partition.max_time)
            for partition in settings.slurm.partitions
        ],
        role_keys=keys_of_roles(roles),
        max_node_count=MAX_NODE_COUNT,
        slurmd_timeout=SLURMD_TIMEOUT,
        mail_program=MAIL_PROGRAM,
    )
    user_settings = {key.lower(): (key, value) for key, value in settings.slurm.settings.items()}
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
            line = f"{key}={_joined(value, user_settings.pop(key.lower(), ('', ''))[1])}"
        elif key.lower() in user_settings:
            continue
        if is_key and not line.startswith("#"):
            places[key] = len(lines)
        lines.append(line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in sorted(user_settings.values()))])


def keys_of_roles(roles: Sequence[Role]) -> dict[str, str]:
    """Return the keys of slurm.conf that roles need. Raise ValueError if two roles set one that is not a list."""
    keys: dict[str, str] = {}
    for role in roles:
        for key, needed in role.slurm_conf.items():
            if key in keys and key not in JOINED:
                raise ValueError(f"{key} of slurm.conf is set by role {role.name}, and by another role")
            keys[key] = _joined(keys.get(key, ""), needed.value)
    return keys


def _joined(*lists: str) -> str:
    items = [item for text in lists for item in text.strip('"').split(",") if item]
    return ",".join(dict.fromkeys(items))


def refused_keys(settings: ClusterSettings, roles: Sequence[Role]) -> Iterator[tuple[str, str]]:
    """Yield the user's keys of slurm.conf that a role must set, and what the user's value would break."""
    needed = {key.lower(): role_key for role in roles for key, role_key in role.slurm_conf.items() if key not in JOINED}
    for key in settings.slurm.settings:
        if key.lower() in needed:
            yield key, needed[key.lower()].breaks


# Header names of the cluster's files.
FILES = (
    *("slurm_slurm_conf", "slurm_gres_conf", "slurm_topology_conf"),
    *("slurm_cgroup_conf", "slurm_mpi_conf", "slurm_job_submit_lua"),
)


def controller_files(
    settings: ClusterSettings, roles: Sequence[Role], sites: Sequence[str], head_address: str, cgroups: bool
) -> Mapping[str, str]:
    """Return the cluster's files as header values, by the names in FILES: `slurm_slurm_conf` for slurm.conf.

    sites     names of the stack's sites
    cgroups   whether cgroups confine jobs on the head node. Other machines may differ (machine_keys.py)
    """
    return {
        "slurm_slurm_conf": slurm_conf(settings, roles, sites, head_address, cgroups),
        # Each machine writes its own file (host.py).
        "slurm_gres_conf": f"{_WRITTEN}\nInclude /etc/tailrack/gres.conf",
        "slurm_topology_conf": f"{_WRITTEN} Each site is a switch; the tailnet connects sites.",
        "slurm_cgroup_conf": render(
            "roles/slurm/slurm/templates/cgroup.conf.j2", profile=CGROUPS if cgroups else PROCESSES
        ),
        "slurm_mpi_conf": render("roles/slurm/slurm/templates/mpi.conf.j2"),
        "slurm_job_submit_lua": render(
            "roles/slurm/slurm/templates/job_submit.lua.j2",
            users=settings.users,
            notified=[user for user in settings.users if user.notify],
            measure_partition=MEASURE_PARTITION,
        ),
    }
