"""All roles, in the order in which machines get them. A new role is a folder, an import and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from components.roles.accounting.role import role as accounting
from components.roles.backup.role import role as backup
from components.roles.backup.role import with_state
from components.roles.budget.role import role as budget
from components.roles.clock.role import role as clock
from components.roles.cluster_settings import ClusterSettings
from components.roles.container_smoke.role import role as container_smoke
from components.roles.costs.role import role as costs
from components.roles.datasets.role import role as datasets
from components.roles.enroot_pyxis.role import role as enroot_pyxis
from components.roles.exporters.role import role as exporters
from components.roles.fabric.role import role as fabric
from components.roles.fio.role import role as fio
from components.roles.firewall.role import role as firewall
from components.roles.foreign_cluster.role import role as foreign_cluster
from components.roles.gpu.role import role as gpu
from components.roles.grafana.role import role as grafana
from components.roles.health.role import role as health
from components.roles.held_packages.role import role as held_packages
from components.roles.job_hangs.role import role as job_hangs
from components.roles.job_reports.role import role as job_reports
from components.roles.machine.role import role as machine
from components.roles.mlflow.role import role as mlflow
from components.roles.monitoring.role import role as monitoring
from components.roles.mounts.role import role as mounts
from components.roles.munge.role import role as munge
from components.roles.names.role import role as names
from components.roles.nfs_exports.role import role as nfs_exports
from components.roles.pam_slurm_adopt.role import role as pam_slurm_adopt
from components.roles.pod.role import role as pod
from components.roles.pod_staging.role import role as pod_staging
from components.roles.profiling.role import role as profiling
from components.roles.restore.role import role as restore
from components.roles.role import USERS, Holder, Role, Value, Word
from components.roles.scratch.role import role as scratch
from components.roles.sll.role import role as live
from components.roles.slurm.role import role as slurm
from components.roles.slurm_release.role import role as slurm_release
from components.roles.spot_notice.role import role as spot_notice
from components.roles.ssh_trust.role import role as ssh_trust
from components.roles.tailnet.role import role as tailnet
from components.roles.tailrack_command.role import role as tools
from components.roles.usage.role import role as usage
from components.roles.user_groups.role import role as user_groups
from components.roles.user_keys.role import role as user_keys
from components.roles.user_limits.role import role as user_limits
from components.roles.users.role import role as users

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
    live,
    nfs_exports,
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
    user_limits,
    held_packages,
    foreign_cluster,
)


def roles(settings: ClusterSettings) -> tuple[Role, ...]:
    """Return the roles that the cluster's settings use, in the order in which a machine gets them.

    A machine leaves in the reverse order. Raises ValueError if roles wait for one another or two have the same name.
    """
    ordered = in_order([role for make in ROLES if (role := make(settings)) is not None])
    closed = {
        "FIREWALL_PORTS": ", ".join(port for role in ordered for port in role.ports),
        "FIREWALL_UDP_PORTS": ", ".join(port for role in ordered for port in role.udp_ports),
    }
    # Values that these roles get from all roles.
    more_values: dict[str, dict[str, Value]] = {
        "firewall": {**closed, "FIREWALL_HOLDERS": holders(ordered)},
        "monitoring": {
            "MONITORING_SCRAPE": [(job, port) for role in ordered for job, port in sorted(role.scrape.items())]
        },
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
