"""Accounting on the head node. slurmctld starts without slurmdbd, uses it when it answers, and switches while jobs run.

A reconfiguration starts a new process, which replaces the old one only after it has started: where accounting does not
work the old one goes on. The record of job usage stays on the machine, as users' files do.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.accounts import as_user
from components.node.failure import Failure, do_each
from components.node.folders import read_theirs
from components.node.locks import Lock
from components.node.log import note
from components.node.run import run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.base.foreign_cluster.host import put_back
from components.roles.slurm.accounting import database, slurmdbd
from components.roles.slurm.accounting.associations import EntriesValues, apply_associations
from components.roles.slurm.slurm.controller import offer
from components.roles.slurm.slurm.folders import (
    CONTROLLER_STATE,
    DBD_CONF,
    SERVICES,
    leave_slurm_folder,
    take_slurm_folder,
)
from components.slurm_commands import slurm

_PACKAGES = ("slurmdbd", "slurm-wlm-mysql-plugin")
_FOLDER = f"{SERVICES}/accounting"
_LINES = f"{_FOLDER}/slurm.conf"
_CLUSTER_NAME = f"{CONTROLLER_STATE}/clustername"
_TRIES = 3
# Register steps of nodes reconfigure slurmctld too. Optional services have a separate lock.
_FILES_LOCK = "tailrack"
_LIMIT = 20
_TABLES = r"""SELECT table_name FROM information_schema.tables WHERE table_schema = 'slurm_acct_db'
    AND table_name LIKE '%\_job\_table'"""


@dataclass(frozen=True)
class AccountingValues(slurmdbd.DaemonValues, EntriesValues):
    """The config's accounting.

    accounting_dump     the program for backups
    accounting_enforce  whether the config has a limit, an account or a QOS
    slurm_release       the Slurm release that the config sets; empty for the distribution's
    """

    accounting_dump: str
    accounting_enabled: bool
    accounting_enforce: bool
    slurm_release: str


def services(step: Step, values: AccountingValues) -> None:
    """Bring the database, slurmdbd, slurmctld and slurmdbd's entries to the config."""
    if not values.accounting_enabled:
        leave_slurmdbd(step)
        for part in parts():
            part()
        return
    slurmdbd.set_foreign_slurmdbd_aside()
    # The role slurm_release has already installed a release that the config sets.
    database.install(step, *(() if values.slurm_release else _PACKAGES))
    files.write(database.DUMP, values.accounting_dump, 0o755)
    database.start(step)
    database.limit_account(step)
    database.restore_dump(step)
    slurmdbd.start(step, values)
    # Enforce limits only after all users have an account; limits in force stay in force meanwhile.
    is_enforced = any(line.startswith("AccountingStorageEnforce=") for line in files.lines(_LINES))
    take_accounting(step, values, enforced=values.accounting_enforce and is_enforced)
    apply_associations(step, values)
    if values.accounting_enforce:
        take_accounting(step, values, enforced=True)


def take_accounting(step: Step, values: slurmdbd.DaemonValues, *, enforced: bool) -> None:
    """Reconfigure slurmctld with the lines for accounting."""
    with Lock(_FILES_LOCK):
        _offer_lines(step, slurmdbd.accounting_lines(values, enforced=enforced))
    # If slurmdbd was down when slurmctld started, as after an upgrade of both, slurmctld connects at its next message
    # or within five minutes (PERIODIC_NODE_ACCT in src/slurmctld/controller.c). A reconfigured one connects at once.
    if not wait_until(slurmdbd.cluster_registered, 10) and not slurm.reconfigure():
        note("slurmctld refuses its configuration")
    if not wait_until(slurmdbd.cluster_registered, 60):
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
    kind = slurm.config("AccountingStorageType")
    return files.exists(_LINES) if kind is None else kind.startswith("accounting_storage/slurmdbd")


def _saved_name() -> str:
    return (read_theirs(_CLUSTER_NAME) or "").rstrip("\n")


def _edit_saved_name(command: str) -> None:
    if not as_user("slurm", "sed", "-i", command, files.on_disk(_CLUSTER_NAME), limit=10, most=4096).ok:
        raise Failure(f"cannot write {_CLUSTER_NAME}")


def leave_slurmdbd(step: Step) -> None:
    """Reconfigure slurmctld without accounting."""
    if not files.exists(_LINES):
        return
    with Lock(_FILES_LOCK):
        files.remove_folder(_FOLDER)
        if reason := offer(names=["slurm.conf"]):
            raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")


def parts() -> Sequence[Callable[[], object]]:
    """Return the parts of the removal; none if there is no database."""
    if not files.exists(f"{systemd.UNITS}/{database.DATABASE}.service"):
        return ()
    return (
        partial(systemd.retire_daemon, "slurmdbd"),
        _remove_database,
        _remove_files,
        partial(run, "systemctl", "daemon-reload"),
    )


def _remove_database() -> None:
    take_slurm_folder()
    keep = jobs_recorded()
    systemd.retire(f"{database.DATABASE}.service")
    if keep:
        sys.stderr.write(f"the accounting database stays in {database.DATABASE_DIR}\n")
    else:
        files.remove_folder(database.DATABASE_DIR)


def jobs_recorded() -> bool:
    """Return whether the database has a job, or does not answer."""
    if not files.is_folder(database.DATABASE_DIR):
        return False
    listed = as_user("slurm", "ls", "-A", files.on_disk(database.DATABASE_DIR), limit=_LIMIT)
    if listed.ok and "slurm_acct_db" not in listed.output.split():
        return False
    tables = database.as_database_user("mariadb", "-N", "-B", "-e", _TABLES, limit=_LIMIT)
    if not tables.ok:
        return True
    names = tables.output.split()
    query = "".join(f"SELECT 1 FROM slurm_acct_db.`{name}` LIMIT 1;\n" for name in names)  # noqa: S608 its own tables
    if not query:
        return False
    jobs = database.as_database_user("mariadb", "-N", "-B", limit=_LIMIT, stdin=query)
    return not jobs.ok or "1" in jobs.output.split()


def _remove_files() -> None:
    if "Written by tailrack." in (files.read(DBD_CONF) or ""):
        files.remove(DBD_CONF)
    data = (database.DUMP, database.DATABASE_CONF, database.WITHOUT_EXEC)
    for path in (*data, slurmdbd.UNIT_ADDITIONS, slurmdbd.CONTROLLER_ADDITIONS):
        files.remove(path)
    files.remove_folder(database.STATE)


def leave(step: Step) -> None:
    """Remove accounting."""
    do_each(*parts(), partial(put_back, DBD_CONF), leave_slurm_folder)
