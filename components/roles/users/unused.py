"""Accounts that tailrack created and that are unused.

One whose uid changes in the config is created again: another machine may have refused the first uid, after this one had
already accepted it.
"""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.passwd import group_named
from components.node.run import attempt, run
from components.roles.users.accounts import GROUPS_MADE, in_home

# Compare the home with a new one: a login leaves a history, and a key of the user's own changes the list of keys.
_HOME_IS_NEW = r"""diff -rq --no-dereference -x .ssh /etc/skel . >/dev/null &&
cmp -s .ssh/authorized_keys .ssh/id_ed25519.pub &&
[ "$(ls -A .ssh)" = "$(printf "%s\n" authorized_keys id_ed25519 id_ed25519.pub)" ]"""
# pgrep's status if no process matches.
_NONE = 1


def is_unused(name: str, home: str) -> bool:
    """Return whether no process runs under an account, and its home, if this machine has it, is as tailrack made it."""
    if attempt("pgrep", "-u", name).status != _NONE:
        return False
    return not files.is_folder(home) or in_home(name, home, _HOME_IS_NEW).ok


def remove_unused(name: str, home: str) -> None:
    """Remove an unused account, its group and its home. Other phases create them with the new numbers."""
    # tailrack's files alone are in that home, and the folder that contains it belongs to root.
    files.remove_folder(home)
    run("userdel", name)
    if name in files.lines(GROUPS_MADE) and group_named(name):
        run("groupdel", name)
    note(f"removed the unused account {name}, whose uid changes")
