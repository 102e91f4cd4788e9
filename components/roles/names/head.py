"""Add the head node's name to the list, as the first."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.names.publish import MEMBERS, keep_name, publish_names
from components.roles.names.published import SOURCE


@dataclass(frozen=True)
class HeadValues:
    """The head node's tailnet address, and the share."""

    head_address: str
    nfs_exports_path: str


def head(step: Step, values: HeadValues) -> None:
    """Publish the names of the head node and of all members."""
    files.remove(SOURCE)
    keep_name(step.host, values.head_address)
    _keep_old_names()
    publish_names(values.nfs_exports_path)


def _keep_old_names() -> None:
    """Record members that joined before addresses were stored: their certificates contain name and address."""
    for node, signed in files.read_in_folders(MEMBERS, "signed").items():
        if not files.exists(f"{MEMBERS}/{node}/address"):
            name, _, address = signed.split(" ")[0].partition(",")
            keep_name(name, address)
