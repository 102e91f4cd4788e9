"""Add a node to the head node's list of names, or remove it."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.names.publish import MEMBERS, keep_name, publish_names


@dataclass(frozen=True)
class NameValues:
    """A node's name and tailnet address, and the share."""

    node_name: str
    node_address: str
    nfs_exports_path: str


@dataclass(frozen=True)
class ForgottenName:
    """The name of a node that the head node forgets, and the share."""

    node_name: str
    nfs_exports_path: str


def register(step: Step, values: NameValues) -> None:
    """Add the node."""
    step.take_lock()
    keep_name(values.node_name, values.node_address)
    publish_names(values.nfs_exports_path)


def forget(step: Step, values: ForgottenName) -> None:
    """Remove the node."""
    files.remove(f"{MEMBERS}/{values.node_name}/address")
    publish_names(values.nfs_exports_path)
