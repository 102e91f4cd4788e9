"""Conflicts between the cluster's users and the accounts that a machine already has."""

from __future__ import annotations

from collections.abc import Iterator

from components.node.failure import Failure
from components.node.passwd import group_with, user_named, user_with
from components.roles.users.accounts import Account, UsersValues, made_here
from components.roles.users.unused import is_unused

# The first uid to offer, and the last.
_FREE = range(6001, 10000)


def refuse_clashes(values: UsersValues, host: str) -> None:
    """Raise Failure if an account of the machine conflicts with a user of the cluster."""
    clashes = [clash for account in values.users_lines for clash in _clashes(account, values)]
    if clashes:
        raise Failure(
            "; ".join(clashes),
            f"choose other uids in tailrack:users (from {_free_uid(values)} up, which is free on {host}) or other "
            f"names, because a user of the cluster cannot be an account that {host} already has; or remove or renumber "
            f"('usermod -u') these accounts on {host}",
        )


def _clashes(account: Account, values: UsersValues) -> Iterator[str]:
    """Yield the conflicts of one user.

    An account with the right numbers and another home belongs to someone else: its jobs would start in a folder that
    other machines do not have.
    """
    name, uid = account.name, account.uid
    holder = user_with(uid)
    if holder and holder.pw_name != name:
        yield f"uid {uid} is {holder.pw_name} here and should be {name}"
    found = user_named(name)
    if found is None:
        return
    ours = name in made_here()
    if found.pw_uid != uid:
        if not (ours and is_unused(name, values.home_on_share(name))):
            yield f"user {name} has uid {found.pw_uid} here and should have {uid}"
    elif ours:
        return
    elif found.pw_gid != account.gid:
        yield f"user {name} has gid {found.pw_gid} here and should have {account.gid}"
    elif found.pw_dir not in ("", values.home(name)):
        yield (
            f"user {name} is an existing account here, with the home {found.pw_dir}, and should have "
            f"{values.home(name)}"
        )


def _free_uid(values: UsersValues) -> int:
    """Return the first number that no account or group of this machine or of the config has."""
    taken = {number for user in values.users_lines for number in (user.uid, user.gid)}
    free = (uid for uid in _FREE if uid not in taken and not user_with(uid) and not group_with(uid))
    return next(free, _FREE[-1])
