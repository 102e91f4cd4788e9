"""Write a member's scrape target. It exists even without monitoring in the config."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.step.step import Step
from components.roles.monitoring.target import Member, MemberName, remove_target, write_target


@dataclass(frozen=True)
class RegisterValues(Member):
    """Its tailnet address."""

    node_address: str


def register(step: Step, values: RegisterValues) -> None:
    """Write the target."""
    write_target(values, values.node_address)


def forget(step: Step, values: MemberName) -> None:
    """Remove it."""
    remove_target(values)
