"""Make the homes reachable in a new container, then let slurmd take jobs."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.pod.homes import make_homes
from components.roles.pod.paths import READY
from components.roles.users.accounts import UsersValues


def pod_boot(step: Step, values: UsersValues) -> None:
    """Make the homes, when the names and the accounts are there."""
    make_homes(values, step.host)
    files.write(READY, "")
