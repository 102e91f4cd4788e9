"""The command `budget`: compare this month's costs with the budget, tell its receivers, and hold or release jobs.

    budget    as root on the head node, once a minute by a timer

It uses the head node's clock in UTC. The messages that were sent are on the disk, so a restart repeats none.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from components.node import files
from components.node.accounts import as_user
from components.roles.budget.hold import hold_jobs, release_jobs
from components.roles.budget.paths import NOTIFY, TOLD
from components.roles.budget.spending import FULL, Spending, message, read_budget, spending
from components.roles.job_reports.paths import ACCOUNT, SPOOL
from components.roles.tailrack_command.book import read_book
from components.roles.tailrack_command.slurm import SlurmError
from components.validation.preflight.findings import plain

LIMIT_SECONDS = 20
# Marks of so many messages are kept, of several months: a clock that jumps back repeats none.
_MOST_MARKS = 20


def main(_: Sequence[str]) -> int:
    """Do it once, and return the exit status."""
    budget = read_budget()
    if budget is None:
        return 0
    now = time.time()
    seen = spending(budget, read_book(), now)
    tell(seen, now)
    try:
        if seen.over and budget.hold:
            hold_jobs(budget)
        else:
            release_jobs()
    except SlurmError as error:
        sys.stderr.write(f"{plain(str(error))}\n")
        return 1
    return 0


def tell(seen: Spending, now: float) -> None:
    """Send one message for the highest percentage that the spending has reached."""
    reached = [percent for percent in (seen.budget.tell, FULL) if seen.amount * FULL >= seen.budget.per_month * percent]
    told = files.lines(TOLD)
    marks = [f"{seen.month} {seen.budget.per_month:.2f} {percent}" for percent in reached]
    if not marks or marks[-1] in told:
        return
    title, text = message(seen, reached[-1], now)
    sys.stderr.write(f"{title}: {' '.join(text.splitlines())}\n")
    receivers = files.lines(NOTIFY)
    if receivers and not send(receivers, f"budget-{marks[-1].replace(' ', '-')}", title, text):
        sys.stderr.write("the service for reports does not take the message; it is tried again in a minute\n")
        return
    files.write(TOLD, "\n".join([*told, *(mark for mark in marks if mark not in told)][-_MOST_MARKS:]), 0o600)


def send(receivers: Sequence[str], name: str, title: str, text: str) -> bool:
    """Hand a message to the service that sends reports; return whether it is in its folder.

    The folder belongs to others, so root does not write there: the service's own account does.
    """
    notice = json.dumps({"to": list(receivers), "title": title, "text": text})
    fresh = f"{SPOOL}/.{name}"
    if not as_user(ACCOUNT, "tee", fresh, limit=LIMIT_SECONDS, stdin=notice).ok:
        return False
    return as_user(ACCOUNT, "mv", "-T", fresh, f"{SPOOL}/{name}.notice", limit=LIMIT_SECONDS).ok
