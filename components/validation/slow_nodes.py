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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.validation.untrusted import Name

Group = tuple[str, ...]

_SIMILAR_SIZES = 1.5


@dataclass(frozen=True)
class Suspect:
    """One node, or two if it is their link or unclear which is slow.

    `busbw_gb_per_s` is the best measurement with the suspect, None if all failed; `reference_gb_per_s` is the bandwidth
    of good nodes in groups of the same size.
    """

    nodes: tuple[Name, ...]
    busbw_gb_per_s: float | None
    reference_gb_per_s: float
    reason: str


def plain(suspect: Suspect) -> dict[str, Any]:
    """Return a suspect for JSON."""
    return {**asdict(suspect), "nodes": list(suspect.nodes)}


class GroupFindings:
    """All measurements. They are judged again after each round, because a better group raises the standard."""

    def __init__(self, nodes: Sequence[str], reference: float | None, slow_below: float) -> None:
        self._nodes, self._reference, self._slow_below = nodes, reference, slow_below
        self._all: list[tuple[Group, float | None]] = []
        # The groups that are clearly below the best of their size, with their figures.
        self.slow: list[tuple[Group, float | None]] = []
        self._good: set[str] = set()

    def add(self, figures: Mapping[Group, float | None]) -> None:
        """Add a round's bus bandwidths; anything but a positive number counts as failed."""
        for group, figure in figures.items():
            valid = figure is not None and math.isfinite(figure) and figure > 0
            self._all.append((group, figure if valid else None))
        self.slow = [(group, figure) for group, figure in self._all if self._is_slow(group, figure)]
        good_groups = [group for group, figure in self._all if figure is not None and (group, figure) not in self.slow]
        self._good = {node for group in good_groups for node in group}

    def measured(self, group: Group) -> bool:
        """Whether exactly these nodes have been measured together."""
        return any(set(group) == set(other) for other, _ in self._all)

    def best(self, group: Group) -> float | None:
        """Return the best bus bandwidth of groups of similar size or the reference."""
        similar = [
            figure
            for other, figure in self._all
            if figure is not None and 1 / _SIMILAR_SIZES <= len(other) / len(group) <= _SIMILAR_SIZES
        ]
        return max([*similar, *([] if self._reference is None else [self._reference])], default=None)

    def _is_slow(self, group: Group, figure: float | None) -> bool:
        best = self.best(group)
        return best is not None and (figure is None or figure < self._slow_below * best)

    def _against(self, node: str) -> list[tuple[Group, float | None]]:
        """Return the slow groups in which only this node is not known to be good, once per partner."""
        good, partners, groups = self._good, set[str](), list[tuple[Group, float | None]]()
        for group, figure in self.slow:
            other_nodes = set(group) - {node}
            if node in group and other_nodes <= good and not other_nodes & partners:
                partners |= other_nodes
                groups.append((group, figure))
        return groups

    def _open(self) -> list[str]:
        """Return the nodes of slow groups that are neither good nor slow with two good nodes yet."""
        good = self._good
        nodes = dict.fromkeys(node for group, _ in self.slow for node in group)
        return [node for node in nodes if node not in good and len(self._against(node)) < 2]

    def _bad_pairs(self) -> dict[frozenset[str], list[float | None]]:
        """Return the figures of pairs that are slow together although both nodes are good with others."""
        good, pairs = self._good, dict[frozenset[str], list[float | None]]()
        for group, figure in self.slow:
            if len(group) == 2 and good.issuperset(group):
                pairs.setdefault(frozenset(group), []).append(figure)
        return pairs

    def _unconfirmed(self) -> list[Group]:
        slow = [set(group) for group, _ in self.slow]
        return [tuple(sorted(pair)) for pair in self._bad_pairs() if sum(pair <= group for group in slow) < 2]

    @property
    def has_open_questions(self) -> bool:
        return bool(self._good and (self._open() or self._unconfirmed()))

    def questions(self) -> tuple[Group, ...]:
        """Return pairs that decide: each suspect with a new good node, and suspected links again."""
        groups = self._unconfirmed()
        free = sorted(self._good - {node for group in groups for node in group})
        for node in self._open():
            partner = next((other for other in free if not self.measured((node, other))), None)
            if partner is not None:
                groups.append((node, partner))
                free.remove(partner)
        return tuple(groups)

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the present suspects, nodes first."""
        if len(self._nodes) < 4 and not self._good:
            return self._undecided()
        good = self._good
        named = [node for node in self._nodes if node not in good and len(self._against(node)) >= 2]
        return (
            *(self._node(node) for node in named),
            *(
                self._pair(tuple(sorted(pair, key=self._nodes.index)), figures)
                for pair, figures in self._bad_pairs().items()
            ),
        )

    def _node(self, node: str) -> Suspect:
        groups = self._against(node)
        best = self.best(groups[0][0]) or 0.0
        figures_text = "; ".join(f"{_figure(figure)} with {_partners(group, node)}" for group, figure in groups)
        return Suspect(
            (node,), _best(figure for _, figure in groups), best, f"{node} gave {figures_text}, {_than(best)}."
        )

    def _pair(self, pair: Group, figures: list[float | None]) -> Suspect:
        best = self.best(pair) or 0.0
        reason = f"{' and '.join(pair)} gave {' and '.join(map(_figure, figures))} together, {_than(best)}"
        return Suspect(pair, _best(figures), best, f"{reason}; each is good with others: check the link between them.")

    def _undecided(self) -> tuple[Suspect, ...]:
        """Return the slowest pair of two or three nodes without a good one, unless all are similar."""
        slow = [(group, figure or 0.0) for group, figure in self.slow]
        figures = [figure for _, figure in slow]
        if not slow or self._reference is None or (len(slow) > 1 and min(figures) >= self._slow_below * max(figures)):
            return ()
        pair, figure = min(slow, key=lambda entry: entry[1])
        text = f"{' and '.join(pair)} gave {_figure(figure or None)} together instead of {self._reference:.3g} GB/s"
        return (Suspect(pair, figure or None, self._reference, f"{text}; it is unclear which of them is slow."),)


def _figure(figure: float | None) -> str:
    return "no figure" if figure is None else f"{figure:.3g} GB/s"


def _than(best: float) -> str:
    return f"where good nodes give {best:.3g} GB/s"


def _partners(group: Group, node: str) -> str:
    return " and ".join(other for other in group if other != node)


def _best(figures: Iterable[float | None]) -> float | None:
    return max((figure for figure in figures if figure is not None), default=None)


NOISE = 0.05
# Fraction of the lowest healthy figure: a fault must lie clearly below it.
_CLEARLY = 0.94
# Among so few nodes, two slow ones may be in all groups of a round and seem good; there is time for every pair.
_ALL_PAIRS_UP_TO = 5
Groups = tuple[Group, ...]
# Measures a round, from its number and its disjoint groups. None if no time is left, which ends the search.
Measure = Callable[[int, Groups], Mapping[Group, float | None] | None]
ONE_RUN = 0.1  # variation of a single run over sockets, either way
MOST_NOISE = 0.25  # with more noise no node can be singled out
LEAST_NODES = 3  # with two nodes it is unclear which one is slow


def search(
    nodes: Sequence[str], reference: float | None, measure: Measure, noise: float = NOISE
) -> tuple[Suspect, ...]:
    """Measure rounds of groups, and return the suspects; none if no time is left for a round.

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
        figures = measure(number + 1, groups)
        if figures is None:
            return ()
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
    nodes: Sequence[str], reference: float | None, measure: Measure, spread: float | None
) -> list[dict[str, Any]]:
    """Return the nodes, or pairs of nodes, that slow down the others.

    spread    (largest - smallest) / median of the runs of all nodes; None for a single run
    """
    noise = ONE_RUN if spread is None else max(NOISE, spread / 2)
    return list(map(plain, search(nodes, reference, measure, min(noise, MOST_NOISE))))
