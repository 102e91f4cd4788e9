"""All roles, in the order in which machines get them. A new role is a folder, an import and a line here.

Roles without much more than a name and their place are functions here, the others in the `role.py` of their folder.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from components.node import minute
from components.node.minute import Task
from components.node.systemd import UNITS
from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.access.ssh_trust.role import role as ssh_trust
from components.roles.access.user_groups.role import role as user_groups
from components.roles.access.user_keys.role import role as user_keys
from components.roles.access.user_limits.role import role as user_limits
from components.roles.cluster_settings import ClusterSettings
from components.roles.commands.tailrack.role import role as tools
from components.roles.containers.enroot_pyxis.role import role as enroot_pyxis
from components.roles.facts import matching, whole
from components.roles.gpu.gpu.role import role as gpu
from components.roles.gpu.profiling.host import TRACES
from components.roles.jobs.job_hangs.role import role as job_hangs
from components.roles.jobs.job_reports.role import role as job_reports
from components.roles.jobs.mlflow.role import role as mlflow
from components.roles.jobs.spot_notice.host import PROGRAM as SPOT_NOTICE
from components.roles.jobs.spot_notice.host import UNIT as SPOT_NOTICE_UNIT
from components.roles.monitoring.budget.spending import BOOK, BUDGET
from components.roles.monitoring.grafana.role import role as grafana
from components.roles.monitoring.health.role import role as health
from components.roles.monitoring.monitoring.host import figures_task
from components.roles.monitoring.monitoring.role import EXPORTER_PACKAGES
from components.roles.monitoring.monitoring.role import role as monitoring
from components.roles.monitoring.usage.role import role as usage
from components.roles.network.fabric.role import role as fabric
from components.roles.network.firewall.host import UNIT as FIREWALL
from components.roles.network.names.role import role as names
from components.roles.network.tailnet.role import role as tailnet
from components.roles.pods.pod.role import role as pod
from components.roles.pods.pod_staging.role import role as pod_staging
from components.roles.program import launcher, version
from components.roles.role import USERS, File, Holder, Role, Value, Word, template, unit
from components.roles.slurm.accounting.role import role as accounting
from components.roles.slurm.slurm.role import role as slurm
from components.roles.storage.backup.role import MOMENT, with_state
from components.roles.storage.backup.role import PACKAGES as BACKUP_PACKAGES
from components.roles.storage.backup.role import role as backup
from components.roles.storage.datasets.role import role as datasets
from components.roles.storage.mounts.role import role as mounts
from components.roles.storage.scratch.role import role as scratch
from components.roles.storage.share.role import role as share

NEEDRESTART = "/etc/needrestart/conf.d/tailrack.conf"
SLL = "/usr/local/bin/sll"


def machine(_settings: ClusterSettings) -> Role:
    """Debian or Ubuntu with systemd, and root. The role brings the program that starts the tasks of roles."""
    size = {"cpus": whole(1, 2**16), "memory_mb": whole(1, 2**31)}
    units = (File(f"{UNITS}/{unit}", template("machine", unit)) for unit in (minute.SERVICE, minute.TIMER))
    return Role(
        "machine",
        facts={"check": size, "pod_check": size},
        files={"machine": (File(minute.PROGRAM, launcher("minute"), mode="0755"), *units)},
        on_pods=("node", "register"),
    )


def clock(_settings: ClusterSettings) -> Role:
    """A machine's time must match the head node's, because munge's credentials expire."""
    # Only machines without a time service get its package (host.py).
    return Role("clock", after=("machine",), on_pods=("check",))


def restore(settings: ClusterSettings) -> Role | None:
    """Restore a lost head node from its backup."""
    if settings.head.restore_from is None:
        return None
    return Role(
        "restore",
        after=("clock",),
        values={"from": settings.head.restore_from},
        packages={"restore": BACKUP_PACKAGES},
        facts={"restore": {"restored_made": MOMENT, "restored_age": MOMENT}},
    )


def munge(settings: ClusterSettings) -> Role:
    """munge signs every message of Slurm with one key of the cluster (components/cluster/secrets.py makes it)."""
    # The key is a secret value of `prepare`; the package is installed after the key.
    release = File("/usr/local/sbin/tailrack-munge-release", launcher("munge-release"), mode="0755")
    answers = tuple(File(f"{ANSWERS}/{name}", launcher(name), mode="0755") for name in ("munge-next", "munge-switch"))
    return Role(
        "munge",
        after=("clock",),
        values={"cluster": settings.cluster.name, "generation": settings.cluster.munge_generation},
        files={"node": answers, "pod": answers, "head": (release,)},
        facts={"register": {"munge_digest": matching("[0-9a-f]{64}")}},
        state=("/etc/munge/munge.key", "/var/lib/tailrack/munge.digests"),
        on_pods=("check", "register", "leave"),
    )


def users(settings: ClusterSettings) -> Role:
    """People's accounts, with the same uid and gid on every node, and their homes; on the share without `homes`."""
    lines = [(user.name, user.uid, user.gid) for user in settings.users]
    values = {"lines": lines, "homes": settings.storage.homes.path if settings.storage.homes else ""}
    after = ("machine", *settings.storage.mounted_by)
    return Role("users", after=after, values=values, on_pods=("check", "machine", "leave"))


def costs(_settings: ClusterSettings) -> Role:
    """Record when each machine was in the cluster, and at what price; without prices the times are useful too."""
    return Role("costs", after=("tailrack",), state=(str(BOOK),), on_pods=("register",))


def sll(_settings: ClusterSettings) -> Role:
    """Install the command `sll` on the head node: nodes, jobs and queue in one window."""
    command = File(SLL, launcher("sll"), "0755")
    return Role("sll", after=("tailrack",), packages={"services": ("python3",)}, files={"services": (command,)})


def profiling(settings: ClusterSettings) -> Role:
    """Profilers for users on compute nodes. Where they are off, nodes take the permission back."""
    traces = {} if settings.profiling else {"compute": TRACES}
    return Role("profiling", after=("gpu",), values={"enabled": settings.profiling}, only_where=traces)


def slurm_release(settings: ClusterSettings) -> Role | None:
    """One release of Slurm on all machines; None if each machine uses its distribution's release."""
    slurm = settings.slurm
    if slurm.release is None:
        return None
    # procps ends build processes; everything else is in every system.
    return Role(
        "slurm_release",
        after=("share",),
        packages={"head": ("procps",), "node": ("procps",)},
        values={"from": slurm.release_source or f"https://download.schedmd.com/slurm/slurm-{slurm.release}.tar.bz2"},
    )


def spot_notice(_settings: ClusterSettings) -> Role:
    """Read providers' notices. The key `spot` of a machine's site decides which machines have the service."""
    return Role(
        "spot_notice",
        after=("slurm",),
        files={"compute": (File(SPOT_NOTICE, launcher("spot-notice"), "0755", needs="node_spot"),)},
        texts={"version": version("spot-notice"), "unit": template("spot_notice", SPOT_NOTICE_UNIT)},
    )


def firewall(settings: ClusterSettings) -> Role:
    """The cluster's ports are open on the tailnet's interface and on loopback only (Role.ports, Role.holders)."""
    program = File("/usr/local/lib/tailrack/hold-ports", template("firewall", "hold-ports"), mode="0755")
    return Role(
        "firewall",
        after=("tailnet",),
        packages={"machine": ("nftables",)},
        values={"head": settings.head.name},
        files={"machine": (program, unit("firewall", FIREWALL))},
    )


def budget(settings: ClusterSettings) -> Role | None:
    """The monthly budget, which `tailrack costs`, `tailrack usage` and the metrics compare with the machines' costs."""
    if not (limit := settings.budget):
        return None
    text = json.dumps([limit.per_month, settings.currency, limit.tell_percent])
    return Role("budget", after=("costs",), files={"services": (File(BUDGET, text),)})


def pam_slurm_adopt(settings: ClusterSettings) -> Role:
    """SSH logins on compute nodes need a job there and join it. Without cgroups a login cannot join a job (host.py)."""
    return Role("pam_slurm_adopt", after=("slurm",), values={"wanted": settings.slurm.ssh_needs_job})


def fio(settings: ClusterSettings) -> Role | None:
    """The package for the storage measurement. A node without it runs jobs but is not measured."""
    return Role("fio", after=("slurm",), wanted={"compute": ("fio",)}) if settings.validation.storage else None


def container_smoke(settings: ClusterSettings) -> Role | None:
    """A job of a user on every node proves that containers work."""
    if not settings.containers:
        return None
    # Copy staged images to this machine's disk, and check that containers work.
    idle = ("Nice=10", "IOSchedulingClass=idle")
    keep = Task("containers", ("/usr/local/sbin/tailrack-containers", "keep"), limit=7200, settings=idle)
    return Role("container_smoke", after=("slurm",), tasks={"compute": (keep,)})


def exporters(settings: ClusterSettings) -> Role | None:
    """Each node's exporter of metrics; None without monitoring: its nodes then have no step for it."""
    if settings.monitoring is None:
        return None
    return Role(
        "exporters",
        after=("monitoring",),
        packages={"node_services": EXPORTER_PACKAGES},
        tasks={"node": (figures_task("tailnet", "gpus", "certificate"),)},
    )


def held_packages(_settings: ClusterSettings) -> Role:
    """Hold the versions of the cluster's packages, and keep needrestart from restarting daemons under jobs."""
    return Role(
        "held_packages",
        # Last, to hold the packages that other roles have installed.
        after=("slurm", "pam_slurm_adopt", "container_smoke", "gpu", "tailnet", "munge"),
        files={"machine": (File(NEEDRESTART, template("held_packages", "needrestart.conf")),)},
    )


def foreign_cluster(_settings: ClusterSettings) -> Role:
    """Refuse a machine that serves another cluster. It comes last: its check refuses what other checks have found."""
    return Role("foreign_cluster", after=("slurm", "share", "munge"), on_pods=("check",))


# Each function returns a role for the cluster's settings, or None if they do not use it. Role.after decides the order;
# roles that it leaves open keep this one.
ROLES: Sequence[Callable[[ClusterSettings], Role | None]] = (
    machine,
    clock,
    restore,
    tailnet,
    firewall,
    munge,
    fabric,
    names,
    users,
    user_groups,
    ssh_trust,
    user_keys,
    tools,
    costs,
    sll,
    share,
    mounts,
    gpu,
    profiling,
    slurm_release,
    pod,
    accounting,
    enroot_pyxis,
    health,
    usage,
    scratch,
    job_reports,
    job_hangs,
    pod_staging,
    user_limits,
    slurm,
    spot_notice,
    budget,
    datasets,
    pam_slurm_adopt,
    fio,
    container_smoke,
    monitoring,
    exporters,
    backup,
    mlflow,
    grafana,
    held_packages,
    foreign_cluster,
)


def roles(settings: ClusterSettings) -> tuple[Role, ...]:
    """Return the roles that the cluster's settings use, in the order in which a machine gets them.

    A machine leaves in the reverse order. Raises ValueError if roles wait for one another or two have the same name.
    """
    ordered = in_order([role for make in ROLES if (role := make(settings)) is not None])
    # Values that these roles get from all roles.
    more_values: dict[str, dict[str, Value]] = {
        "firewall": {
            "ports": ", ".join(port for role in ordered for port in role.ports),
            "udp_ports": ", ".join(port for role in ordered for port in role.udp_ports),
            "holders": holders(ordered),
        },
        "monitoring": {"scrape": [(job, port) for role in ordered for job, port in sorted(role.scrape.items())]},
    }
    return with_state(replace(role, values={**role.values, **more_values.get(role.name, {})}) for role in ordered)


def holders(roles: Iterable[Role]) -> list[tuple[Word, ...]]:
    """Return a row per port that only a daemon may bind: port, account, machines (`head` or `all`), whether private."""
    rows: list[tuple[Word, ...]] = []
    for role in roles:
        for ports in (*role.ports, *role.fabric_ports):
            first, _, last = ports.partition("-")
            for port in map(str, range(int(first), int(last or first) + 1)):
                holder = role.holders.get(port) or role.holders.get(ports) or Holder()
                if holder.account != USERS:
                    rows.append((port, holder.account, "head" if holder.head_alone else "all", holder.private))
    return rows


def in_order(roles: Iterable[Role]) -> list[Role]:
    """Return roles so that each comes after those that it needs, and otherwise in the given order."""
    by_name: dict[str, Role] = {}
    for role in roles:
        if by_name.setdefault(role.name, role) is not role:
            raise ValueError(f"two roles have the name {role.name}")
    # Ignore roles in `after` that the settings do not use.
    graph = TopologicalSorter({name: sorted(by_name.keys() & {*role.after}) for name, role in by_name.items()})
    try:
        graph.prepare()
    except CycleError as error:
        raise ValueError(f"roles that wait for one another: {' -> '.join(error.args[1])}") from None
    position = {name: index for index, name in enumerate(by_name)}
    ready: list[str] = []
    ordered = []
    while graph.is_active():
        ready = sorted([*ready, *graph.get_ready()], key=position.__getitem__)
        graph.done(ready[0])
        ordered.append(by_name[ready.pop(0)])
    return ordered
