"""Refuse to register a node with an invalid answer."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.failure import Failure
from components.node.step.step import Step


@dataclass(frozen=True)
class NodeAnswer:
    """A node, and the error in its answer (components/steps/results.py); empty if it is valid."""

    node_name: str
    node_problem: str


def register(step: Step, values: NodeAnswer) -> None:
    """Raise Failure for an invalid answer."""
    if values.node_problem:
        raise Failure(
            f"{values.node_name} cannot register: {values.node_problem}",
            f"check {values.node_name}: some program there answers instead of tailrack's steps",
        )
