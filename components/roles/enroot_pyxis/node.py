"""Install containers on a node before its slurmd takes jobs."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.enroot_pyxis.install import ContainersValues, install_containers
from components.roles.enroot_pyxis.plugin import plugin_kind


def node(step: Step, values: ContainersValues) -> None:
    """Install them."""
    install_containers(step, values, plugin_kind(values))
