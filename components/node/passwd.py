"""Accounts and groups of the machine, those of a directory service included."""

import grp
import os
import pwd

from components.node.log import note
from components.node.run import attempt, run


def is_root() -> bool:
    """Return whether this process is root."""
    return os.geteuid() == 0


def user_named(name: str) -> pwd.struct_passwd | None:
    """Return the account with a name."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def user_with(uid: int) -> pwd.struct_passwd | None:
    """Return the account with a uid."""
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def group_named(name: str) -> grp.struct_group | None:
    """Return the group with a name."""
    try:
        return grp.getgrnam(name)
    except KeyError:
        return None


def group_with(gid: int) -> grp.struct_group | None:
    """Return the group with a gid."""
    try:
        return grp.getgrgid(gid)
    except KeyError:
        return None


def make_daemon_account(name: str, number: int = 0) -> None:
    """Make a daemon's account without a home and a shell, unless it exists. It gets the number if that is free."""
    if not user_named(name):
        numbers = ("--uid", str(number)) if number and not user_with(number) and not group_with(number) else ()
        place = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        run("useradd", "--system", "--user-group", *numbers, *place, name)


def remove_daemon_account(name: str) -> None:
    """Remove such an account, if it exists and has no processes."""
    if user_named(name) and not attempt("userdel", name).ok:
        note(f"the account {name} stays because one of its processes is still running")
