"""Which roles there are, and in which order machines get them. A new role is a folder, an import and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from components.roles.accounting.role import role as accounting
from components.roles.backup.role import role as backup
from components.roles.backup.role import with_state
from components.roles.clock.role import role as clock
from components.roles.cluster_settings import ClusterSettings
from components.roles.container_smoke.role import role as container_smoke
from components.roles.costs.role import role as costs
from components.roles.enroot_pyxis.role import role as enroot_pyxis
from components.roles.exporters.role import role as exporters
from components.roles.fabric.role import role as fabric
from components.roles.firewall.role import role as firewall
from components.roles.foreign_cluster.role import role as foreign_cluster
from components.roles.gpu.role import role as gpu
from components.roles.grafana.role import role as grafana
from components.roles.health.role import role as health
from components.roles.held_packages.role import role as held_packages
from components.roles.machine.role import role as machine
from components.roles.mlflow.role import role as mlflow
from components.roles.monitoring.role import role as monitoring
from components.roles.munge.role import role as munge
from components.roles.names.role import role as names
from components.roles.nfs_exports.role import role as nfs_exports
from components.roles.pam_slurm_adopt.role import role as pam_slurm_adopt
from components.roles.restore.role import role as restore
from components.roles.role import USERS, Holder, Role, Value, Word
from components.roles.scratch.role import role as scratch
from components.roles.sll.role import role as live
from components.roles.slurm.role import role as slurm
from components.roles.slurm_release.role import role as slurm_release
from components.roles.ssh_trust.role import role as ssh_trust
from components.roles.tailnet.role import role as tailnet
from components.roles.tailrack_command.role import role as tools
from components.roles.users.role import role as users

# From the cluster's settings to the role, or to None where they ask for none. Which one a machine has first, the roles
# say themselves (Role.after); where they leave it open it is this order.
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
    ssh_trust,
    tools,
    costs,
    live,
    nfs_exports,
    gpu,
    slurm_release,
    accounting,
    enroot_pyxis,
    health,
    scratch,
    slurm,
    pam_slurm_adopt,
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
    """Return every role that the cluster's settings ask for, as they have it, in the order that a machine gets them in.

    It leaves in the reverse one. Raises ValueError where roles wait for one another, or two have one name.
    """
    found = in_order([role for make in ROLES if (role := make(settings)) is not None])
    closed = {
        "FIREWALL_PORTS": ", ".join(port for role in found for port in role.ports),
        "FIREWALL_UDP_PORTS": ", ".join(port for role in found for port in role.udp_ports),
    }
    # What these are told of all roles.
    told: dict[str, dict[str, Value]] = {
        "firewall": {**closed, "FIREWALL_HOLDERS": holders(found)},
        "monitoring": {
            "MONITORING_SCRAPE": [(job, port) for role in found for job, port in sorted(role.scrape.items())]
        },
    }
    return with_state(replace(role, values={**role.values, **told.get(role.name, {})}) for role in found)


def holders(made: Iterable[Role]) -> list[tuple[Word, ...]]:
    """Return a row a port that is a daemon's own: the port, the account, and the machines (`head` or `all`)."""
    rows: list[tuple[Word, ...]] = []
    for role in made:
        for ports in role.ports:
            first, _, last = ports.partition("-")
            for port in map(str, range(int(first), int(last or first) + 1)):
                holder = role.holders.get(port) or role.holders.get(ports) or Holder()
                if holder.account != USERS:
                    rows.append((port, holder.account, "head" if holder.head_alone else "all"))
    return rows


def in_order(made: Iterable[Role]) -> list[Role]:
    """Return roles so that each comes after those that it needs; where that leaves a choice, as they were."""
    by_name: dict[str, Role] = {}
    for role in made:
        if by_name.setdefault(role.name, role) is not role:
            raise ValueError(f"two roles have the name {role.name}")
    # One that the settings do not ask for is nothing to wait for.
    graph = TopologicalSorter({name: sorted(by_name.keys() & {*role.after}) for name, role in by_name.items()})
    try:
        graph.prepare()
    except CycleError as error:
        raise ValueError(f"roles that wait for one another: {' -> '.join(error.args[1])}") from None
    place = {name: index for index, name in enumerate(by_name)}
    ready: list[str] = []
    found = []
    while graph.is_active():
        ready = sorted([*ready, *graph.get_ready()], key=place.__getitem__)
        graph.done(ready[0])
        found.append(by_name[ready.pop(0)])
    return found
