"""Run the rounds of a search for slow nodes, with the groups of a round side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from components.validation.slow_nodes import NOISE, search

Groups = tuple[tuple[str, ...], ...]
ONE_RUN = 0.1  # variation of a single run over sockets, either way
MOST_NOISE = 0.25  # with more noise no node can be singled out
LEAST_NODES = 3  # with two nodes it is unclear which one is slow


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
        return [{**asdict(suspect), "nodes": list(suspect.nodes)} for suspect in end.value]
