"""Remove the link to the users' homes. The homes stay."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step


@dataclass(frozen=True)
class LeaveValues:
    """The path of the share."""

    nfs_exports_mount: str


def pod_leave(step: Step, values: LeaveValues) -> None:
    """Remove the link."""
    if files.kind_of(values.nfs_exports_mount) == stat.S_IFLNK:
        files.remove(values.nfs_exports_mount)
