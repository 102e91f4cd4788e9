"""Remove the groups that tailrack created. Their folders on the share stay."""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.passwd import group_named
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.user_groups.groups import MADE


def leave(step: Step) -> None:
    """Remove them. `userdel` (role users) takes users out of groups that this machine had before."""
    for name in files.lines(MADE):
        if group_named(name) and not attempt("groupdel", name).ok:
            note(f"group {name} stays: it is an account's own group")
