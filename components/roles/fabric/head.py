"""Prove the fabric of a head node that runs jobs, with which other nodes of its site then prove theirs."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.step.kept import keep
from components.node.step.step import Step
from components.roles.fabric.check_path import HeadAddress, check_path
from components.roles.fabric.prove import NodeNetworks, prove_fabric


@dataclass(frozen=True)
class HeadValues(NodeNetworks, HeadAddress):
    """The head node.

    head_computes                          whether it runs jobs
    head_fabric_plan, head_fabric_values   plan and values of the program that retries failed proofs, as JSON
    fabric_again_command                   text of that program
    """

    head_computes: bool
    head_fabric_plan: str
    head_fabric_values: str
    fabric_again_command: str


def head(step: Step, values: HeadValues) -> None:
    """Install the program that retries failed proofs, and prove the head node's own fabric."""
    check_path(step, values)
    keep("fabric-again", values.head_fabric_plan, values.head_fabric_values, values.fabric_again_command)
    if values.head_computes:
        prove_fabric(step, values, values.head_address)
