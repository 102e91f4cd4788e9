"""Which nodes are measured together on their GPUs: those with the same, because a collective waits for the least."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NO_GPU = "no GPUs"
NO_PEER = "no other node has GPUs like its own"


@dataclass(frozen=True)
class Group:
    """Nodes measured together. `gpus` is what each has, such as h200:8, or several such; `per_node` GPUs take part."""

    gpus: str
    nodes: tuple[str, ...]
    per_node: int

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


def grouped(gpus: Mapping[str, str], most: int = 0) -> tuple[tuple[Group, ...], dict[str, str]]:
    """The groups of a site, most GPUs first, and why a node is in none.

    gpus   node to its GPUs (`h200:8`), empty where it has none
    most   GPUs of a node that take part at most; 0 for all
    """
    alike: dict[str, list[str]] = {}
    for node in sorted(gpus):
        alike.setdefault(gpus[node], []).append(node)
    left = dict.fromkeys(alike.pop("", []), NO_GPU)
    groups = [Group(kind, tuple(nodes), count(kind, most)) for kind, nodes in alike.items()]
    # One GPU by itself has nobody to speak with; several of these are measured with one another.
    single = [group for group in groups if group.ranks < 2]
    groups = [group for group in groups if group.ranks >= 2]
    if len(single) > 1:
        nodes = sorted(node for group in single for node in group.nodes)
        groups.append(Group(", ".join(sorted(group.gpus for group in single)), tuple(nodes), 1))
    else:
        left |= {node: NO_PEER for group in single for node in group.nodes}
    return tuple(sorted(groups, key=lambda group: (-group.ranks, group.gpus))), left


def across(
    gpus: Mapping[str, str], sites: Mapping[str, str], most: int = 0
) -> tuple[tuple[Group, ...], dict[str, str]]:
    """All nodes with GPUs as one group, each with as many as the least of them has; none within one site."""
    having = sorted(node for node in gpus if gpus[node])
    if len({sites[node] for node in having}) < 2:
        return (), {}
    kinds = ", ".join(sorted({gpus[node] for node in having}))
    group = Group(kinds, tuple(having), min(count(gpus[node], most) for node in having))
    return (group,), {node: NO_GPU for node in sorted(gpus) if not gpus[node]}


def alone(gpus: Mapping[str, str], nodes: Iterable[str], most: int = 0) -> tuple[Group, ...]:
    """Each of the nodes by itself that has at least two GPUs."""
    return tuple(Group(gpus[node], (node,), count(gpus[node], most)) for node in nodes if count(gpus[node], most) > 1)
