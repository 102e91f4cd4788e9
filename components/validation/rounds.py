"""The rounds of a search for slow nodes, driven by measurements that go on side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from components.validation.slow_nodes import NOISE, search

Groups = tuple[tuple[str, ...], ...]
ONE_RUN = 0.1  # how far a single run over sockets may be off, either way
MOST_NOISE = 0.25  # beyond this nobody could be told from the others
LEAST_NODES = 3  # of two nodes that are slow together nobody can say which it is


def suspects(
    nodes: Sequence[str],
    reference: float | None,
    measure: Callable[[int, Groups], Mapping[tuple[str, ...], float | None] | None],
    spread: float | None,
) -> list[dict[str, Any]]:
    """The nodes, or pairs of them, that hold the others back.

    spread    of the runs of all of them, (largest - smallest) / middle; None where there was one run
    measure   bus bandwidth in GB/s of each group of a round, by the number of the round and its groups; None when there
              is no time left, which ends the search without accusing anybody
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
        return [{**asdict(suspect), "nodes": list(suspect.nodes)} for suspect in end.value]
