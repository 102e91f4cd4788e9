"""Homes of users on a pod, which has no share: folders of its volume, at the path of the share."""

from __future__ import annotations

import stat
from pathlib import PurePosixPath

from components.node import files, folders
from components.node.failure import Failure
from components.roles.pod.paths import HOMES
from components.roles.users.accounts import UsersValues


def make_homes(values: UsersValues, host: str) -> None:
    """Make a home for each user. Raises Failure if the path of the share is taken."""
    mount = values.nfs_exports_mount
    if files.kind_of(mount) not in (0, stat.S_IFLNK) and not files.remove_if_empty(mount):
        raise Failure(
            f"{mount} is a folder with files on this pod, and homes must be there, at the same path as elsewhere",
            f"set tailrack:storage.mount to another folder, for all machines, or move {mount} away on {host}",
        )
    for path in (HOMES, f"{HOMES}/home"):
        files.make_folder(path)
    for user in values.users_lines:
        folders.give(user.name, 0o700, f"{HOMES}/home/{user.name}")
    if (above := str(PurePosixPath(mount).parent)) != "/":
        files.make_folder(above)
    files.link(mount, HOMES)
