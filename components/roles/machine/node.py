"""Refuse an invalid answer of the head node."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.failure import Failure
from components.node.step.step import Step


@dataclass(frozen=True)
class HeadAnswer:
    """The error in the head node's answer (components/steps/results.py); empty if it is valid."""

    head_problem: str


def node(step: Step, values: HeadAnswer) -> None:
    """Raise Failure for an invalid answer."""
    if values.head_problem:
        raise Failure(
            f"the head node's answer for {step.host} is invalid: {values.head_problem}",
            "check the head node: some program there answers instead of tailrack's steps",
        )
