"""Groups of users, with their shared folders on the share."""

from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.passwd import group_named, group_with
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.access.users.accounts import Account, made_here
from components.roles.facts import MOST_ITEMS

# Groups that tailrack gave members on this machine, and those of them that it created, one name per line.
KNOWN = f"{STATE_DIR}/user-groups"
MADE = f"{STATE_DIR}/user-groups-made"
# Files of a folder with the set-gid bit belong to its group.
_MODE = 0o2770
# New files get these permissions. With the kernel's NFS 4.2, the server handles the umask, and the ACL replaces it.
# Clients of nfs-ganesha apply it; on Debian 13 and Ubuntu it is 002 for users with their own group (pam_umask).
_DEFAULT_ACL = "u::rwx,g::rwx,o::---"


@dataclass(frozen=True)
class Group:
    """A group of the config."""

    name: str
    gid: int


@dataclass(frozen=True)
class Member:
    """A user who is in a group."""

    group: str
    user: str


@dataclass(frozen=True)
class GroupsValues:
    """The groups and members of the config, the cluster's users, and where the head node has the share."""

    user_groups_lines: list[Group]
    user_groups_members: list[Member]
    users_lines: list[Account]
    share_path: str

    @property
    def folder(self) -> str:
        """Return the folder that contains the groups' folders on the head node."""
        return f"{self.share_path}/groups"

    def former(self) -> list[str]:
        """Return groups of this machine that the config no longer has."""
        names = {group.name for group in self.user_groups_lines}
        return [name for name in files.lines(KNOWN) if name not in names]


def refuse_clashes(values: GroupsValues, host: str) -> None:
    """Raise Failure if a group of the config conflicts with one of this machine."""
    clashes = [clash for group in values.user_groups_lines for clash in _clashes(group, values)]
    clashes += [clash for account in values.users_lines for clash in _clashes_of_user(account, values.former())]
    if clashes:
        raise Failure(
            "; ".join(clashes),
            f"choose other names and gids in tailrack:groups (and for users in tailrack:users) that {host} does not "
            f"have yet; or, if nothing belongs to these groups any more, remove them on {host} ('groupdel NAME')",
        )


def _clashes(group: Group, values: GroupsValues) -> Iterator[str]:
    holder = group_with(group.gid)
    if holder and holder.gr_name != group.name:
        yield f"gid {group.gid} is the group {holder.gr_name} here and should be {group.name}"
    present = group_named(group.name)
    if present is None or present.gr_gid == group.gid:
        return
    folder = f"{values.folder}/{group.name}"
    if group.name not in files.lines(MADE):
        yield f"group {group.name} has gid {present.gr_gid} here and should have {group.gid}"
    elif files.names_in(folder):
        yield f"group {group.name} cannot change from gid {present.gr_gid} to {group.gid}: {folder} has files of it"


def _clashes_of_user(account: Account, former: list[str]) -> Iterator[str]:
    """Yield the clash of a user with a former group, whose files would belong to the user."""
    holder = group_with(account.gid)
    if holder and holder.gr_name in former:
        yield f"gid {account.gid} of user {account.name} is the former group {holder.gr_name} here"
    elif account.name in former and group_named(account.name):
        yield f"user {account.name} has the name of a former group here"


def ensure_group(group: Group) -> None:
    """Create a group, or give one of ours another gid (refuse_clashes has checked that it has no files)."""
    present = group_named(group.name)
    # Record a name before it is created: only recorded groups are ever changed or removed.
    files.add_line(KNOWN, group.name)
    if present is None:
        files.add_line(MADE, group.name)
        run("groupadd", "-g", str(group.gid), group.name)
        note(f"created group {group.name} ({group.gid})")
    elif present.gr_gid != group.gid:
        run("groupmod", "-g", str(group.gid), group.name)
        note(f"group {group.name} has gid {group.gid} now")


def set_members(group: str, wanted: list[str], users: list[Account]) -> None:
    """Add members, and remove present and former users of the cluster. Other accounts of this machine stay members."""
    present = group_named(group)
    members = list(present.gr_mem) if present else []
    for name in wanted:
        if name not in members:
            run("gpasswd", "-a", name, group)
            note(f"{name} joined {group}")
    ours = {user.name for user in users} | set(made_here())
    for name in members:
        if name not in wanted and name in ours:
            run("gpasswd", "-d", name, group)
            note(f"{name} left {group}")


def check(step: Step, values: GroupsValues) -> None:
    """Check the groups, and change nothing."""
    refuse_clashes(values, step.host)


def machine(step: Step, values: GroupsValues) -> None:
    """Make the groups as the config has them. A former group stays, so that no other gets its files, without members.

    Sessions and jobs that run keep the groups that they began with.
    """
    refuse_clashes(values, step.host)
    for group in values.user_groups_lines:
        ensure_group(group)
        members = [member.user for member in values.user_groups_members if member.group == group.name]
        set_members(group.name, members, values.users_lines)
    for name in values.former():
        set_members(name, [], values.users_lines)


def head(step: Step, values: GroupsValues, share_node: str) -> None:
    """Make the folders. Those of former groups stay, and only root can open them."""
    if not share_node:
        storage(step, values)
    left = [name for name in values.former() if files.is_folder(f"{values.folder}/{name}")]
    step.result("left_groups", left[:MOST_ITEMS])


def storage(step: Step, values: GroupsValues) -> None:
    """Make the folders where the share is served: NFS does not pass on the ACLs."""
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


def _require_roots(path: str, host: str) -> None:
    """Raise Failure if a path belongs to another account, which may have put anything into it."""
    if files.exists(path) and files.owner_of(path) != "root":
        raise Failure(
            f"{path} belongs to {files.owner_of(path)} and must be a folder of root's, for tailrack:groups",
            f"move it away on {host}, then run up again",
        )


def leave(step: Step) -> None:
    """Remove them. `userdel` (role users) takes users out of groups that this machine had before."""
    for name in files.lines(MADE):
        if group_named(name) and not attempt("groupdel", name).ok:
            note(f"group {name} stays: it is an account's own group")
