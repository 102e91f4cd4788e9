"""Create a folder on the share for each group, in which the group's members may change each other's files."""

from __future__ import annotations

from components.node import files
from components.node.failure import Failure
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.facts import MOST_ITEMS
from components.roles.user_groups.groups import GroupsValues

# Files of a folder with the set-gid bit belong to its group.
_MODE = 0o2770
# New files get these permissions. With the kernel's NFS 4.2, the server handles the umask, and the ACL replaces it.
# Clients of nfs-ganesha apply it; on Debian 13 and Ubuntu it is 002 for users with their own group (pam_umask).
_DEFAULT_ACL = "u::rwx,g::rwx,o::---"


def head(step: Step, values: GroupsValues) -> None:
    """Make the folders. Those of former groups stay, and only root can open them."""
    if values.user_groups_lines:
        _require_roots(values.folder, step.host)
        files.make_folder(values.folder)
    for group in values.user_groups_lines:
        path = f"{values.folder}/{group.name}"
        _require_roots(path, step.host)
        files.make_folder(path, _MODE, "root", group.gid)
        if not attempt("setfacl", "-d", "-m", _DEFAULT_ACL, "--", files.on_disk(path)).ok:
            raise Failure(
                f"cannot set a default ACL on {path}: the share's file system needs POSIX ACLs",
                f"on ZFS, run 'zfs set acltype=posix' for it on {step.host}; then run up again",
            )
    left = [name for name in values.former() if files.is_folder(f"{values.folder}/{name}")]
    step.result("left_groups", left[:MOST_ITEMS])


def _require_roots(path: str, host: str) -> None:
    """Raise Failure if a path belongs to another account, which may have put anything into it."""
    if files.exists(path) and files.owner_of(path) != "root":
        raise Failure(
            f"{path} belongs to {files.owner_of(path)} and must be a folder of root's, for tailrack:groups",
            f"move it away on {host}, then run up again",
        )
