"""Create the cluster's users with the same uid and gid on every node, and close the accounts of former users."""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.passwd import group_with, user_named
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.users.accounts import GROUPS_MADE, MADE, Account, UsersValues, gone, made_here
from components.roles.users.clash import refuse_clashes
from components.roles.users.unused import remove_unused


def machine(step: Step, values: UsersValues) -> None:
    """Make the accounts as the config has them."""
    refuse_clashes(values, step.host)
    for account in values.users_lines:
        _ensure_account(account, values)
    for name in gone(values.users_lines):
        _close(name)


def _ensure_account(account: Account, values: UsersValues) -> None:
    name = account.name
    there = user_named(name)
    if there and there.pw_uid != account.uid:
        remove_unused(name, values.home_on_share(name))
        there = None
    # Record a name before it is created: only recorded accounts and groups are ever closed or removed.
    if not group_with(account.gid):
        files.add_line(GROUPS_MADE, name)
        run("groupadd", "-g", str(account.gid), name)
    if not there:
        files.add_line(MADE, name)
        # Password '*' matches no password, but does not lock the account, so keys work.
        numbers = ("-u", str(account.uid), "-g", str(account.gid))
        run("useradd", "-M", "-d", values.home(name), "-s", "/bin/bash", *numbers, "-p", "*", name)
        note(f"created user {name} ({account.uid})")
    elif name in made_here():
        run("usermod", "-e", "", name)


def _close(name: str) -> None:
    """Close an account. An expired one refuses every login, also by key. Its files stay."""
    if not user_named(name):
        return
    run("usermod", "-e", "1", name)
    if not attempt("pkill", "-KILL", "-u", name).ok:
        note(f"{name} has no process here")
    note(f"closed the account of {name}")
