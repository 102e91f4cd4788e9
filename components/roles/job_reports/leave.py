"""Remove the service, its account and reports that are not sent."""

from __future__ import annotations

from functools import partial

from components.node import files
from components.node.log import note
from components.node.parts import do_each
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.job_reports.paths import ACCOUNT, SPOOL, STATE
from components.roles.job_reports.services import remove_service


def leave(step: Step) -> None:
    """Remove them."""
    do_each(remove_service, *(partial(files.remove_folder, path) for path in (SPOOL, STATE)), _remove_account)


def _remove_account() -> None:
    if user_named(ACCOUNT) and not attempt("userdel", ACCOUNT).ok:
        note(f"the account {ACCOUNT} stays because one of its processes is still running")
