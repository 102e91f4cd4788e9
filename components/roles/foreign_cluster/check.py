"""Refuse a machine that serves another cluster, and list all that the checks of the other roles have found."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.foreign_cluster.foreign import BACKUP


@dataclass(frozen=True)
class TakeOver:
    """Whether the config allows taking the machine over."""

    node_take_over: bool


def check(step: Step, values: TakeOver) -> None:
    """Refuse the machine unless the config allows taking it over."""
    foreign = ", ".join(step.foreign)
    if not foreign:
        return
    note(f"of another cluster: {foreign}")
    if not values.node_take_over:
        raise Failure(
            f"this machine serves another cluster: it has {foreign}",
            f"remove {step.host} from the config; or, if these are no longer needed, set take_over: true for it there "
            f"(they are kept in {BACKUP} on it)",
        )
