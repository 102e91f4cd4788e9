"""Find the node, or the pair of nodes, that slows down a collective.

Nodes are measured in disjoint groups side by side, in at most ceil(log2(N)) + 2 rounds:

1. All nodes in pairs. A slow pair has two suspects.
2. Each suspect with good nodes. A node that is slow with two good nodes is named. Two nodes that are good with others
but slow together are named as a pair: the link between them.
3. No slow pair: a link between unpaired nodes is bad. Halves, then the nodes of one half with those of the other, in
groups half as large each time, until a pair is left.

With up to five nodes every pair is measured instead.

Assumptions: A group is as slow as its slowest node and its worst link. In a ring only links between neighbours count,
so a link may stay unfound. Healthy groups of similar size differ by at most `noise` either way; at 5 % a fault must
cost a quarter of the bandwidth. Groups of other sizes are not compared, because busbw over sockets falls slightly with
more nodes. From four nodes on, nodes are compared only with each other: a reference that no node reaches accuses none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.validation.group_findings import Group, GroupFindings, Suspect, plain

Rounds = Generator[tuple[Group, ...], Mapping[Group, float | None], tuple[Suspect, ...]]
NOISE = 0.05
# Fraction of the lowest healthy figure: a fault must lie clearly below it.
_CLEARLY = 0.94
# Among so few nodes, two slow ones may be in all groups of a round and seem good; there is time for every pair.
_ALL_PAIRS_UP_TO = 5
Groups = tuple[tuple[str, ...], ...]
ONE_RUN = 0.1  # variation of a single run over sockets, either way
MOST_NOISE = 0.25  # with more noise no node can be singled out
LEAST_NODES = 3  # with two nodes it is unclear which one is slow


def search(nodes: Sequence[str], reference: float | None = None, noise: float = NOISE) -> Rounds:
    """Yield rounds of disjoint groups to measure, receive their bus bandwidths, and return the suspects.

    nodes       at least 2 different nodes in the order of their ranks
    reference   bus bandwidth in GB/s of healthy nodes, None if unknown; used only for 2 and 3 nodes
    noise       variation of a healthy group either way, as a fraction

    A missing or None bandwidth means that the group failed. Raises ValueError for fewer than 2 nodes or duplicates.
    """
    if len(nodes) < 2 or len(set(nodes)) < len(nodes):
        raise ValueError(f"{', '.join(nodes) or 'no nodes'}: a search needs at least 2 different nodes")
    findings = GroupFindings(nodes, reference if len(nodes) < 4 else None, _CLEARLY * (1 - noise) / (1 + noise))
    links = _Links(nodes)
    for number in range(math.ceil(math.log2(len(nodes))) + 2):
        groups = _next_round(nodes, number, findings, links)
        if not groups:
            break
        figures = yield groups
        findings.add({group: figures.get(group) for group in groups})
    return findings.suspects()


def _next_round(nodes: Sequence[str], number: int, findings: GroupFindings, links: _Links) -> tuple[Group, ...]:
    if len(nodes) <= _ALL_PAIRS_UP_TO and number < len(nodes) - 1 + len(nodes) % 2:
        return _turn(nodes, number)
    if number == 0:
        return _neighbours(nodes)
    if findings.has_open_questions:
        return findings.questions()
    if len(nodes) <= _ALL_PAIRS_UP_TO or findings.suspects():
        return ()
    return links.next_round(findings) or _unmeasured(_neighbours([*nodes[1:], nodes[0]]), findings)


def _turn(nodes: Sequence[str], number: int) -> tuple[Group, ...]:
    """Return the pairs of one turn of a round-robin; with an odd number, one node rests."""
    ring = [*nodes[1:], *([""] if len(nodes) % 2 else [])]
    ring = [nodes[0], *ring[number:], *ring[:number]]
    pairs = zip(ring[: len(ring) // 2], reversed(ring), strict=False)
    return tuple(pair for pair in pairs if all(pair))


def _neighbours(nodes: Sequence[str]) -> tuple[Group, ...]:
    """Return pairs of neighbours; with an odd number, the last three together."""
    pairs = [tuple(nodes[start : start + 2]) for start in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2:
        pairs[-1] = (*pairs[-1], nodes[-1])
    return tuple(pairs)


def _unmeasured(groups: Iterable[Group], findings: GroupFindings) -> tuple[Group, ...]:
    return tuple(group for group in groups if not findings.measured(group))


@dataclass(frozen=True)
class _Region:
    """The place of the bad link: between a node of `left` and one of `right`, or within `left` if `right` is empty."""

    left: Group
    right: Group = ()

    def halves(self) -> tuple[_Region, ...]:
        """Return the disjoint parts that are measured, each as one group of nodes."""
        if not self.right:  # every second node, so that no neighbours are measured again
            return _regions((self.left[::2], ()), (self.left[1::2], ()))
        (low, high), (other_low, other_high) = _cut(self.left), _cut(self.right)
        # Crosswise, so that the unmeasured rest ends with neighbours, which have been measured.
        return _regions((low, other_high), (high, other_low))

    def rest(self) -> tuple[_Region, ...]:
        """Return the parts that are left if none of the halves is slow."""
        if len(self.group) == 2:
            return ()
        if not self.right:
            return _regions((self.left[::2], self.left[1::2]))
        (low, high), (other_low, other_high) = _cut(self.left), _cut(self.right)
        return tuple(part for part in _regions((low, other_low), (high, other_high)) if part.right and part.left)

    @property
    def group(self) -> Group:
        return self.left + self.right


def _regions(*parts: tuple[Group, Group]) -> tuple[_Region, ...]:
    return tuple(_Region(left, right) for left, right in parts if left or right)


def _cut(block: Group) -> tuple[Group, Group]:
    half = (len(block) + 1) // 2
    return block[:half], block[half:]


class _Links:
    """The search for a link: disjoint regions that are halved in every round."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._regions: tuple[_Region, ...] = (_Region(tuple(nodes)),)
        self._measured_parts: tuple[_Region, ...] = ()

    def next_round(self, findings: GroupFindings) -> tuple[Group, ...]:
        """Return the next groups to measure; none if no region is left."""
        slow = {group for group, _ in findings.slow}
        if self._measured_parts:
            hit = [part for part in self._measured_parts if part.group in slow]
            self._regions = tuple(hit) or tuple(part for region in self._regions for part in region.rest())
        elif slow:  # three nodes of the first round that are all good with others
            self._regions = tuple(_Region(group) for group in slow)
        while self._regions:
            self._measured_parts = tuple(part for region in self._regions for part in self._parts(region))
            groups = _unmeasured((part.group for part in self._measured_parts if len(part.group) > 1), findings)
            if groups:
                return groups
            self._regions = tuple(part for region in self._regions for part in region.rest())
        return ()

    @staticmethod
    def _parts(region: _Region) -> tuple[_Region, ...]:
        return (region,) if len(region.group) == 2 else region.halves()


def suspects(
    nodes: Sequence[str],
    reference: float | None,
    measure: Callable[[int, Groups], Mapping[tuple[str, ...], float | None] | None],
    spread: float | None,
) -> list[dict[str, Any]]:
    """Return the nodes, or pairs of nodes, that slow down the others.

    spread    (largest - smallest) / median of the runs of all nodes; None for a single run
    measure   returns the bus bandwidth in GB/s of each group, from the round's number and groups; None if no time is
              left, which ends the search without a suspect
    """
    noise = ONE_RUN if spread is None else max(NOISE, spread / 2)
    rounds, number = search(nodes, reference, min(noise, MOST_NOISE)), 1
    try:
        groups = next(rounds)
        while True:
            figures = measure(number, groups)
            if figures is None:
                rounds.close()
                return []
            groups, number = rounds.send(figures), number + 1
    except StopIteration as end:
        return list(map(plain, end.value))
