"""Which nodes are measured together on their GPUs: those with the same, because a collective waits for the least."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

NO_MPI: Mapping[str, str] = MappingProxyType({})
NO_GPU = "no GPUs"
NO_PEER = "no other node has GPUs like its own"
NO_MPI_PEER = "no node whose GPUs it could be measured with has its release of Open MPI and PMIx"


@dataclass(frozen=True)
class Group:
    """Nodes measured together. `gpus` is what each has, such as h200:8, or several such; `per_node` GPUs take part.

    mpi   the major versions of Open MPI and PMIx, 5-pmix5, which bring the ranks together; empty where none matters
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
        """The kind of GPU; several are joined by `+`."""
        return "+".join(sorted({each.partition(":")[0] for each in self.gpus.split(", ")}))


def count(gpus: str, most: int = 0) -> int:
    """How many GPUs of `h200:8` take part; 0 of an empty text."""
    found = int(gpus.partition(":")[2] or 0)
    return min(found, most) if most else found


def speaking(mpi: Mapping[str, str], nodes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Nodes by the major versions of Open MPI and PMIx: other ones do not speak with each other.

    mpi   node to its versions; empty, or nothing, where they are not known: such a node is taken for one of the most
    """
    found = {node: mpi.get(node, "") for node in sorted(nodes)}
    known = [version for version in found.values() if version]
    usual = max(sorted(set(known)), key=known.count, default="")
    by_version: dict[str, list[str]] = {}
    for node, version in found.items():
        by_version.setdefault(version or usual, []).append(node)
    return {version: tuple(by_version[version]) for version in sorted(by_version)}


def grouped(
    gpus: Mapping[str, str], most: int = 0, mpi: Mapping[str, str] = NO_MPI
) -> tuple[tuple[Group, ...], dict[str, str]]:
    """The groups of a site, most GPUs first, and why a node is in none.

    gpus   node to its GPUs (`h200:8`), empty where it has none
    most   GPUs of a node that take part at most; 0 for all
    mpi    see speaking
    """
    having = sorted(node for node in gpus if gpus[node])
    left = {node: NO_GPU for node in sorted(gpus) if not gpus[node]}
    groups: list[Group] = []
    lonely: list[str] = []
    for version, nodes in speaking(mpi, having).items():
        alike: dict[str, list[str]] = {}
        for node in nodes:
            alike.setdefault(gpus[node], []).append(node)
        found = [Group(kind, tuple(own), count(kind, most), version) for kind, own in alike.items()]
        # One GPU by itself has nobody to speak with; several of these are measured with one another.
        single = [group for group in found if group.ranks < 2]
        groups += [group for group in found if group.ranks >= 2]
        if len(single) > 1:
            names = sorted(node for group in single for node in group.nodes)
            groups.append(Group(", ".join(sorted(group.gpus for group in single)), tuple(names), 1, version))
        else:
            lonely += [node for group in single for node in group.nodes]
    for node in lonely:
        alike_elsewhere = sum(gpus[other] == gpus[node] for other in having) > 1
        left[node] = NO_MPI_PEER if alike_elsewhere or len(lonely) > 1 else NO_PEER
    return tuple(sorted(groups, key=lambda group: (-group.ranks, group.gpus, group.mpi))), left


def across(
    gpus: Mapping[str, str], sites: Mapping[str, str], most: int = 0, mpi: Mapping[str, str] = NO_MPI
) -> tuple[tuple[Group, ...], dict[str, str]]:
    """All nodes with GPUs as one group, each with as many as the least of them has; none within one site.

    Of nodes that do not speak MPI with each other, the most that stand in several sites.
    """
    having = sorted(node for node in gpus if gpus[node])
    spanning = [
        (version, nodes) for version, nodes in speaking(mpi, having).items() if len({sites[node] for node in nodes}) > 1
    ]
    if not spanning:
        return (), {}
    version, nodes = max(spanning, key=lambda each: len(each[1]))
    kinds = ", ".join(sorted({gpus[node] for node in nodes}))
    group = Group(kinds, nodes, min(count(gpus[node], most) for node in nodes), version)
    left = {node: NO_MPI_PEER if gpus[node] else NO_GPU for node in sorted(gpus) if node not in nodes}
    return (group,), left


def alone(gpus: Mapping[str, str], nodes: Iterable[str], most: int = 0) -> tuple[Group, ...]:
    """Each of the nodes by itself that has at least two GPUs."""
    return tuple(Group(gpus[node], (node,), count(gpus[node], most)) for node in nodes if count(gpus[node], most) > 1)
