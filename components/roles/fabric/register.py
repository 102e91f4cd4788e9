"""Prove the fabric of a node before its line goes into Slurm's files."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.step.step import Step
from components.roles.fabric.prove import NodeNetworks, prove_fabric


@dataclass(frozen=True)
class RegisterValues(NodeNetworks):
    """The node, with its tailnet address."""

    node_address: str


def register(step: Step, values: RegisterValues) -> None:
    """Prove it."""
    prove_fabric(step, values, values.node_address)
