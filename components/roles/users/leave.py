"""Remove the accounts that tailrack created, with their crontabs and lingering sessions.

Their files on the share keep their uids, so the next account with such a uid owns them.
"""

from __future__ import annotations

import time

from components.node import files
from components.node.log import note
from components.node.passwd import group_named, user_named
from components.node.run import attempt, exists, succeeds
from components.node.step.step import Step
from components.roles.users.accounts import GROUPS_MADE, made_here

_TRIES = 5


def leave(step: Step) -> None:
    """Remove the accounts, then the groups that are left: userdel removes most of them."""
    for name in made_here():
        if user_named(name):
            _forget(name)
    for name in files.lines(GROUPS_MADE):
        if group_named(name) and not attempt("groupdel", name).ok:
            note(f"group {name} stays: it has other members")


def end_sessions() -> None:
    """End the processes of the users whose accounts tailrack created."""
    for name in made_here():
        attempt("pkill", "-KILL", "-u", name, quiet=True)


def _forget(name: str) -> None:
    if exists("crontab") and succeeds("crontab", "-u", name, "-l"):
        attempt("crontab", "-u", name, "-r")
    files.remove(f"/var/lib/systemd/linger/{name}")
    for _ in range(_TRIES):
        if attempt("userdel", name).ok:
            return
        # A process may have started in between.
        end_sessions()
        time.sleep(0.5)
    note(f"account {name} stays: it still has processes")
