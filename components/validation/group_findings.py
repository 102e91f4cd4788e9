"""The measurements in a search for slow nodes (slow_nodes.py) and the suspects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
        self._slow: list[tuple[Group, float | None]] = []
        self._good: set[str] = set()

    def add(self, figures: Mapping[Group, float | None]) -> None:
        """Add a round's bus bandwidths; anything but a positive number counts as failed."""
        for group, figure in figures.items():
            valid = figure is not None and math.isfinite(figure) and figure > 0
            self._all.append((group, figure if valid else None))
        self._slow = [(group, figure) for group, figure in self._all if self._is_slow(group, figure)]
        good_groups = [group for group, figure in self._all if figure is not None and (group, figure) not in self._slow]
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

    @property
    def slow(self) -> list[tuple[Group, float | None]]:
        """The groups that are clearly below the best of their size, with their figures."""
        return self._slow

    def _is_slow(self, group: Group, figure: float | None) -> bool:
        best = self.best(group)
        return best is not None and (figure is None or figure < self._slow_below * best)

    def _against(self, node: str) -> list[tuple[Group, float | None]]:
        """Return the slow groups in which only this node is not known to be good, once per partner."""
        good, partners, groups = self._good, set[str](), list[tuple[Group, float | None]]()
        for group, figure in self._slow:
            other_nodes = set(group) - {node}
            if node in group and other_nodes <= good and not other_nodes & partners:
                partners |= other_nodes
                groups.append((group, figure))
        return groups

    def _open(self) -> list[str]:
        """Return the nodes of slow groups that are neither good nor slow with two good nodes yet."""
        good = self._good
        nodes = dict.fromkeys(node for group, _ in self._slow for node in group)
        return [node for node in nodes if node not in good and len(self._against(node)) < 2]

    def _bad_pairs(self) -> dict[frozenset[str], list[float | None]]:
        """Return the figures of pairs that are slow together although both nodes are good with others."""
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
        slow = [(group, figure or 0.0) for group, figure in self._slow]
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
