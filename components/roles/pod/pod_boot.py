"""Start the services of a pod in a new container."""

from __future__ import annotations

from components.node import services
from components.node.step.step import Step
from components.roles.pod.homes import make_homes
from components.roles.users.accounts import UsersValues


def pod_boot(step: Step, values: UsersValues) -> None:
    """Make the homes reachable, and start all services."""
    make_homes(values, step.host)
    services.start_all()
