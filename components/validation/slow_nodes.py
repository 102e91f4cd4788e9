"""Finds the node, or the pair of nodes, that holds a collective back.

Nodes are measured in disjoint groups side by side, in at most ceil(log2(N)) + 2 rounds:

1. All nodes in pairs. A slow pair has two suspects.
2. Each suspect with good nodes, a different one each time. A node that is slow with two good ones is named; two that
   are good with others and slow together are named as a pair: the link between them.
3. No pair slow: it is a link between nodes that were not paired. Halves, then the nodes of one half with those of the
   other, each time in groups half as large, until a pair is left.

Of up to five nodes every pair is measured instead.

What is assumed. A group is as slow as its slowest node, and as the worst link between any two of its nodes. In a ring
that holds for neighbours alone, so a link may stay unfound; nobody is accused for it, because a pair is only named when
it was slow by itself. Sound groups of like size are off by at most `noise` either way; at 5 % what is to be found gives
at most three quarters, and where runs differ more, less. Groups are compared with groups of like size, because busbw
over sockets falls a little with more nodes. From four nodes up nodes are compared with one another alone: a figure that
no node reaches accuses none of them.
"""

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

Group = tuple[str, ...]
Rounds = Generator[tuple[Group, ...], Mapping[Group, float | None], "tuple[Suspect, ...]"]

NOISE = 0.05
# Of the least that a sound group shows beside the best: what is to be found lies clearly below it.
_CLEARLY = 0.94
_LIKE_SIZES = 1.5
# Two slow nodes among so few may be in all groups of a round, and pass for good; there is time to measure every pair.
_ALL_PAIRS_UP_TO = 5


@dataclass(frozen=True)
class Suspect:
    """One node, or two where it is the link between them or cannot be told which of them it is.

    `busbw_gb_per_s` is the best that was measured with the suspect at fault, None where its measurements failed;
    `reference_gb_per_s` what good nodes gave in groups of the same size. `reason` is a sentence.
    """

    nodes: tuple[str, ...]
    busbw_gb_per_s: float | None
    reference_gb_per_s: float
    reason: str


def search(nodes: Sequence[str], reference: float | None = None, noise: float = NOISE) -> Rounds:
    """Yield rounds of disjoint groups to measure, be sent their bus bandwidths, and return the suspects.

    nodes       at least 2, each once, in the order of their ranks
    reference   bus bandwidth in GB/s that sound nodes give, None where not known; decides for 2 and 3 nodes only
    noise       how far a sound group is off by itself, either way, as a fraction; more of it accuses less

    A group that was sent None, or nothing, failed. ValueError for fewer than 2 nodes or one that is there twice.
    """
    if len(nodes) < 2 or len(set(nodes)) < len(nodes):
        raise ValueError(f"{', '.join(nodes) or 'no nodes'}: a search needs at least 2 different nodes")
    found = _Findings(nodes, reference if len(nodes) < 4 else None, _CLEARLY * (1 - noise) / (1 + noise))
    links = _Links(nodes)
    for number in range(math.ceil(math.log2(len(nodes))) + 2):
        groups = _next_round(nodes, number, found, links)
        if not groups:
            break
        figures = yield groups
        found.add({group: figures.get(group) for group in groups})
    return found.suspects()


def _next_round(nodes: Sequence[str], number: int, found: "_Findings", links: "_Links") -> tuple[Group, ...]:
    if len(nodes) <= _ALL_PAIRS_UP_TO and number < len(nodes) - 1 + len(nodes) % 2:
        return _turn(nodes, number)
    if number == 0:
        return _neighbours(nodes)
    if found.has_open_questions:
        return found.questions()
    if len(nodes) <= _ALL_PAIRS_UP_TO or found.suspects():
        return ()
    return links.next_round(found) or _unmeasured(_neighbours([*nodes[1:], nodes[0]]), found)


def _turn(nodes: Sequence[str], number: int) -> tuple[Group, ...]:
    """The pairs of one turn, in which everybody meets somebody else than in the others; of an odd number one rests."""
    ring = [*nodes[1:], *([""] if len(nodes) % 2 else [])]
    ring = [nodes[0], *ring[number:], *ring[:number]]
    pairs = zip(ring[: len(ring) // 2], reversed(ring), strict=False)
    return tuple(pair for pair in pairs if all(pair))


def _neighbours(nodes: Sequence[str]) -> tuple[Group, ...]:
    """Pairs; of an odd number the last three together."""
    pairs = [tuple(nodes[at : at + 2]) for at in range(0, len(nodes) - 1, 2)]
    if len(nodes) % 2:
        pairs[-1] = (*pairs[-1], nodes[-1])
    return tuple(pairs)


def _unmeasured(groups: Iterable[Group], found: "_Findings") -> tuple[Group, ...]:
    return tuple(group for group in groups if not found.measured(group))


class _Findings:
    """All that was measured, judged anew whenever something is asked: a better group shows what good is."""

    def __init__(self, nodes: Sequence[str], reference: float | None, slow_below: float) -> None:
        self._nodes, self._reference, self._slow_below = nodes, reference, slow_below
        self._all: list[tuple[Group, float | None]] = []
        self._slow: list[tuple[Group, float | None]] = []
        self._good: set[str] = set()

    def add(self, figures: Mapping[Group, float | None]) -> None:
        """Take a round's bus bandwidths; what is no number above 0 counts as failed."""
        for group, figure in figures.items():
            sound = figure is not None and math.isfinite(figure) and figure > 0
            self._all.append((group, figure if sound else None))
        self._slow = [(group, figure) for group, figure in self._all if self._is_slow(group, figure)]
        sound_groups = [
            group for group, figure in self._all if figure is not None and (group, figure) not in self._slow
        ]
        self._good = {node for group in sound_groups for node in group}

    def measured(self, group: Group) -> bool:
        """Whether these nodes have been measured together, and alone."""
        return any(set(group) == set(other) for other, _ in self._all)

    def best(self, group: Group) -> float | None:
        """The best bus bandwidth of a group of like size, or the reference; None where there is neither."""
        like = [
            figure
            for other, figure in self._all
            if figure is not None and 1 / _LIKE_SIZES <= len(other) / len(group) <= _LIKE_SIZES
        ]
        return max([*like, *([] if self._reference is None else [self._reference])], default=None)

    @property
    def slow(self) -> list[tuple[Group, float | None]]:
        """The groups, with their figures, that are clearly below the best of their size."""
        return self._slow

    def _is_slow(self, group: Group, figure: float | None) -> bool:
        best = self.best(group)
        return best is not None and (figure is None or figure < self._slow_below * best)

    def _against(self, node: str) -> list[tuple[Group, float | None]]:
        """The slow groups in which this node is the only one that is not known to be good; no partner twice."""
        good, partners, groups = self._good, set[str](), list[tuple[Group, float | None]]()
        for group, figure in self._slow:
            others = set(group) - {node}
            if node in group and others <= good and not others & partners:
                partners |= others
                groups.append((group, figure))
        return groups

    def _open(self) -> list[str]:
        """The nodes of slow groups that have yet to be seen good, or slow with two good ones."""
        good = self._good
        nodes = dict.fromkeys(node for group, _ in self._slow for node in group)
        return [node for node in nodes if node not in good and len(self._against(node)) < 2]

    def _bad_pairs(self) -> dict[frozenset[str], list[float | None]]:
        """The figures of pairs that are slow together although each of the two is good with others."""
        good, pairs = self._good, dict[frozenset[str], list[float | None]]()
        for group, figure in self._slow:
            if len(group) == 2 and good.issuperset(group):
                pairs.setdefault(frozenset(group), []).append(figure)
        return pairs

    def _unconfirmed(self) -> list[Group]:
        slow = [set(group) for group, _ in self._slow]
        return [tuple(sorted(pair)) for pair in self._bad_pairs() if sum(pair <= group for group in slow) < 2]

    @property
    def has_open_questions(self) -> bool:
        """Whether a node or a pair is suspected and not decided."""
        return bool(self._good and (self._open() or self._unconfirmed()))

    def questions(self) -> tuple[Group, ...]:
        """Pairs that decide: each suspect with a good node that it has not been with, and suspected links again."""
        groups = self._unconfirmed()
        free = sorted(self._good - {node for group in groups for node in group})
        for node in self._open():
            new = next((other for other in free if not self.measured((node, other))), None)
            if new is not None:
                groups.append((node, new))
                free.remove(new)
        return tuple(groups)

    def suspects(self) -> tuple[Suspect, ...]:
        """Who is named by what is known: nodes first."""
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
        with_whom = "; ".join(f"{_figure(figure)} with {_others(group, node)}" for group, figure in groups)
        return Suspect((node,), _best(figure for _, figure in groups), best, f"{node} gave {with_whom}, {_than(best)}.")

    def _pair(self, pair: Group, figures: list[float | None]) -> Suspect:
        best = self.best(pair) or 0.0
        reason = f"{' and '.join(pair)} gave {' and '.join(map(_figure, figures))} together, {_than(best)}"
        return Suspect(
            pair, _best(figures), best, f"{reason}; each is good with others: look at the link between them."
        )

    def _undecided(self) -> tuple[Suspect, ...]:
        """Of two or three nodes, none of which has been seen good: the slowest pair, unless all are alike."""
        slow = [(group, figure or 0.0) for group, figure in self._slow]
        figures = [figure for _, figure in slow]
        if not slow or self._reference is None or (len(slow) > 1 and min(figures) >= self._slow_below * max(figures)):
            return ()
        pair, figure = min(slow, key=lambda each: each[1])
        told = f"{' and '.join(pair)} gave {_figure(figure or None)} together where {self._reference:.3g} GB/s is right"
        return (Suspect(pair, figure or None, self._reference, f"{told}; which of them it is cannot be told."),)


def _figure(figure: float | None) -> str:
    return "nothing" if figure is None else f"{figure:.3g} GB/s"


def _than(best: float) -> str:
    return f"where good nodes give {best:.3g} GB/s"


def _others(group: Group, node: str) -> str:
    return " and ".join(other for other in group if other != node)


def _best(figures: Iterable[float | None]) -> float | None:
    return max((figure for figure in figures if figure is not None), default=None)


@dataclass(frozen=True)
class _Region:
    """Where the bad link may be: between a node of `left` and one of `right`, or in `left` where `right` is empty."""

    left: Group
    right: Group = ()

    def halves(self) -> tuple["_Region", ...]:
        """The parts that are measured, each as one group of nodes; none has a node of another."""
        if not self.right:  # every other node, so that no pair of neighbours is measured again
            return _regions((self.left[::2], ()), (self.left[1::2], ()))
        (low, high), (other_low, other_high) = _cut(self.left), _cut(self.right)
        # Crosswise: what is not measured here ends with neighbours, which have been measured.
        return _regions((low, other_high), (high, other_low))

    def rest(self) -> tuple["_Region", ...]:
        """The parts that are left when none of the halves is slow."""
        if len(self.group) == 2:
            return ()
        if not self.right:
            return _regions((self.left[::2], self.left[1::2]))
        (low, high), (other_low, other_high) = _cut(self.left), _cut(self.right)
        return tuple(part for part in _regions((low, other_low), (high, other_high)) if part.right and part.left)

    @property
    def group(self) -> Group:
        """Its nodes."""
        return self.left + self.right


def _regions(*parts: tuple[Group, Group]) -> tuple[_Region, ...]:
    return tuple(_Region(left, right) for left, right in parts if left or right)


def _cut(block: Group) -> tuple[Group, Group]:
    half = (len(block) + 1) // 2
    return block[:half], block[half:]


class _Links:
    """The search for a link: regions with no node in common, halved in every round."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._regions: tuple[_Region, ...] = (_Region(tuple(nodes)),)
        self._asked: tuple[_Region, ...] = ()

    def next_round(self, found: _Findings) -> tuple[Group, ...]:
        """The next groups to measure; none when no region is left."""
        slow = {group for group, _ in found.slow}
        if self._asked:
            hit = [part for part in self._asked if part.group in slow]
            self._regions = tuple(hit) or tuple(part for region in self._regions for part in region.rest())
        elif slow:  # three of the first round whose nodes are all good with others
            self._regions = tuple(_Region(group) for group in slow)
        while self._regions:
            self._asked = tuple(part for region in self._regions for part in self._parts(region))
            groups = _unmeasured((part.group for part in self._asked if len(part.group) > 1), found)
            if groups:
                return groups
            self._regions = tuple(part for region in self._regions for part in region.rest())
        return ()

    @staticmethod
    def _parts(region: _Region) -> tuple[_Region, ...]:
        return (region,) if len(region.group) == 2 else region.halves()
