"""Switch slurmctld's accounting on or off while jobs run.

A reconfiguration starts a new process, which replaces the old one only after it has started: where accounting does not
work the old one goes on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.node import files
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.folders import read_theirs
from components.node.locks import Lock
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.accounting import sacctmgr
from components.roles.accounting.slurmdbd import DaemonValues, accounting_lines
from components.roles.slurm.folder import CONTROLLER_STATE
from components.roles.slurm.offer import offer
from components.roles.slurm.paths import SERVICES

_FOLDER = f"{SERVICES}/accounting"
_LINES = f"{_FOLDER}/slurm.conf"
_CLUSTER_NAME = f"{CONTROLLER_STATE}/clustername"
_TRIES = 3
# Register steps of nodes reconfigure slurmctld too. Optional services have a separate lock.
_FILES_LOCK = "tailrack"


def is_enforced() -> bool:
    """Return whether jobs need an account now."""
    return any(line.startswith("AccountingStorageEnforce=") for line in files.lines(_LINES))


def take_accounting(step: Step, values: DaemonValues, *, enforced: bool) -> None:
    """Reconfigure slurmctld with the lines for accounting."""
    lock = Lock(_FILES_LOCK)
    try:
        _offer_lines(step, accounting_lines(values, enforced=enforced))
    finally:
        lock.release()
    # If slurmdbd was down when slurmctld started, as after an upgrade of both, slurmctld connects at its next message
    # or within five minutes (PERIODIC_NODE_ACCT in src/slurmctld/controller.c). A reconfigured one connects at once.
    if not wait_until(sacctmgr.cluster_registered, 10) and not attempt("scontrol", "reconfigure").ok:
        note("slurmctld refuses its configuration")
    if not wait_until(sacctmgr.cluster_registered, 60):
        raise Failure(
            "slurmctld does not register with slurmdbd",
            f"see 'journalctl -u slurmctld -u slurmdbd' on {step.host}, then run up again",
        )


def _offer_lines(step: Step, lines: Sequence[str]) -> None:
    """Offer the lines to slurmctld, without the number that it may have given the cluster.

    A slurmctld that started without slurmdbd has given the cluster a number. If slurmdbd's number is another one, it
    always exits with CLUSTER ID MISMATCH (before 25.11; src/slurmctld/controller.c). Without a number it takes
    slurmdbd's.
    """
    old_name = "" if _uses_slurmdbd() else _saved_name()
    for attempts_left in reversed(range(_TRIES)):
        if old_name:
            _edit_saved_name("s/|.*//")
        files.write(_LINES, "\n".join(lines))
        reason = offer(names=["slurm.conf"])
        if not reason:
            return
        # A new node reconfigures slurmctld too. If it did so just now, slurmctld has given the cluster a number again.
        if not (attempts_left and old_name and "|" in _saved_name()):
            break
        note("slurmctld was reconfigured for a node meanwhile; trying again")
    if old_name:
        files.remove_folder(_FOLDER)
    if "|" in old_name and "|" not in _saved_name():
        _edit_saved_name(f"1s/$/|{old_name.partition('|')[2]}/")
    raise Failure(reason, f"see its message above and 'journalctl -u slurmctld -u slurmdbd' on {step.host}")


def _uses_slurmdbd() -> bool:
    shown = attempt("scontrol", "show", "config").output
    return bool(re.search("^AccountingStorageType *= *accounting_storage/slurmdbd", shown, re.MULTILINE))


def _saved_name() -> str:
    return (read_theirs(_CLUSTER_NAME) or "").rstrip("\n")


def _edit_saved_name(command: str) -> None:
    if not as_user("slurm", "sed", "-i", command, files.on_disk(_CLUSTER_NAME), limit=10, most=4096).ok:
        raise Failure(f"cannot write {_CLUSTER_NAME}")


def leave_slurmdbd(step: Step) -> None:
    """Reconfigure slurmctld without accounting."""
    if not files.exists(_LINES):
        return
    lock = Lock(_FILES_LOCK)
    try:
        files.remove_folder(_FOLDER)
        if reason := offer(names=["slurm.conf"]):
            raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")
    finally:
        lock.release()
