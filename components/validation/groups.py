"""Group nodes with the same GPUs: a collective is as slow as its slowest node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NO_GPU = "no GPUs"
NO_PEER = "no other node has the same GPUs"
NO_MPI_PEER = "no other node with suitable GPUs has the same release of Open MPI and PMIx"


@dataclass(frozen=True)
class Group:
    """Nodes measured together.

    gpus       GPUs of each node, such as h200:8, or several such
    per_node   GPUs per node that take part
    mpi        major versions of Open MPI and PMIx (5-pmix5); empty if irrelevant
    """

    gpus: str
    nodes: tuple[str, ...]
    per_node: int
    mpi: str = ""

    @property
    def ranks(self) -> int:
        return len(self.nodes) * self.per_node

    @property
    def kind(self) -> str:
        return "+".join(sorted({gpus.partition(":")[0] for gpus in self.gpus.split(", ")}))


def count(gpus: str, most: int = 0) -> int:
    """Return how many GPUs of `h200:8` take part; 0 for an empty text."""
    number = int(gpus.partition(":")[2] or 0)
    return min(number, most) if most else number


def by_mpi_release(mpi: Mapping[str, str], nodes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes by major versions of Open MPI and PMIx, which are incompatible with each other.

    mpi   versions by node; a node without known versions counts as one with the most common versions
    """
    versions = {node: mpi.get(node, "") for node in sorted(nodes)}
    known_versions = [version for version in versions.values() if version]
    usual = max(sorted(set(known_versions)), key=known_versions.count, default="")
    by_version: dict[str, list[str]] = {}
    for node, version in versions.items():
        by_version.setdefault(version or usual, []).append(node)
    return {version: tuple(by_version[version]) for version in sorted(by_version)}


def groups_of(
    gpus: Mapping[str, str], sites: Mapping[str, str], most: int, mpi: Mapping[str, str]
) -> tuple[tuple[Group, ...], dict[str, str]]:
    """Return the groups of a scope, and the reason for each node in no group. `sites`: those of all its nodes."""
    spans = len(set(sites.values())) > 1
    return spanning_group(gpus, sites, most, mpi) if spans else site_groups(gpus, most, mpi)


def site_groups(gpus: Mapping[str, str], most: int, mpi: Mapping[str, str]) -> tuple[tuple[Group, ...], dict[str, str]]:
    """Return the groups of a site, most GPUs first, and the reason for each node in no group.

    gpus   GPUs by node (`h200:8`), empty if it has none
    most   maximum number of GPUs per node that take part; 0 for all
    mpi    see by_mpi_release
    """
    gpu_nodes = sorted(node for node in gpus if gpus[node])
    left_out = {node: NO_GPU for node in sorted(gpus) if not gpus[node]}
    groups: list[Group] = []
    without_peer: list[str] = []
    for version, nodes in by_mpi_release(mpi, gpu_nodes).items():
        alike: dict[str, list[str]] = {}
        for node in nodes:
            alike.setdefault(gpus[node], []).append(node)
        groups_of_version = [
            Group(kind, tuple(names_of_kind), count(kind, most), version) for kind, names_of_kind in alike.items()
        ]
        # A single GPU needs a partner; several single GPUs are measured together.
        single = [group for group in groups_of_version if group.ranks < 2]
        groups += [group for group in groups_of_version if group.ranks >= 2]
        if len(single) > 1:
            names = sorted(node for group in single for node in group.nodes)
            groups.append(Group(", ".join(sorted(group.gpus for group in single)), tuple(names), 1, version))
        else:
            without_peer += [node for group in single for node in group.nodes]
    for node in without_peer:
        alike_elsewhere = sum(gpus[other] == gpus[node] for other in gpu_nodes) > 1
        left_out[node] = NO_MPI_PEER if alike_elsewhere or len(without_peer) > 1 else NO_PEER
    return tuple(sorted(groups, key=lambda group: (-group.ranks, group.gpus, group.mpi))), left_out


def spanning_group(
    gpus: Mapping[str, str], sites: Mapping[str, str], most: int, mpi: Mapping[str, str]
) -> tuple[tuple[Group, ...], dict[str, str]]:
    """Return all nodes with GPUs as one group, each with as many as the smallest has; none within one site.

    With incompatible MPI versions, take the largest compatible set that spans several sites.
    """
    gpu_nodes = sorted(node for node in gpus if gpus[node])
    spanning = [
        (version, nodes)
        for version, nodes in by_mpi_release(mpi, gpu_nodes).items()
        if len({sites[node] for node in nodes}) > 1
    ]
    if not spanning:
        return (), {}
    version, nodes = max(spanning, key=lambda version_nodes: len(version_nodes[1]))
    kinds = ", ".join(sorted({gpus[node] for node in nodes}))
    group = Group(kinds, nodes, min(count(gpus[node], most) for node in nodes), version)
    left_out = {node: NO_MPI_PEER if gpus[node] else NO_GPU for node in sorted(gpus) if node not in nodes}
    return (group,), left_out


def single_node_groups(gpus: Mapping[str, str], nodes: Iterable[str], most: int) -> tuple[Group, ...]:
    """Return a group for each of the nodes that has at least two GPUs."""
    return tuple(Group(gpus[node], (node,), count(gpus[node], most)) for node in nodes if count(gpus[node], most) > 1)
