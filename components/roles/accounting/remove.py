"""Remove slurmdbd and its database; a database with jobs stays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from components.node import files, systemd
from components.node.accounts import as_user
from components.node.run import run
from components.roles.accounting.paths import (
    DATABASE,
    DATABASE_CONF,
    DATABASE_DIR,
    DBD_CONF,
    DUMP,
    STATE,
    WITHOUT_EXEC,
    as_database_user,
)
from components.roles.accounting.slurmdbd import CONTROLLER_ADDITIONS, UNIT_ADDITIONS
from components.roles.slurm.folder import take_slurm_folder

_LIMIT = 20
_TABLES = r"""SELECT table_name FROM information_schema.tables WHERE table_schema = 'slurm_acct_db'
    AND table_name LIKE '%\_job\_table'"""


def end_accounting() -> None:
    """Remove everything."""
    for part in parts():
        part()


def parts() -> Sequence[Callable[[], object]]:
    """Return the parts of the removal; none if there is no database."""
    if not files.exists(f"{systemd.UNITS}/{DATABASE}.service"):
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
    systemd.retire(f"{DATABASE}.service")
    if keep:
        sys.stderr.write(f"the accounting database stays in {DATABASE_DIR}\n")
    else:
        files.remove_folder(DATABASE_DIR)


def jobs_recorded() -> bool:
    """Return whether the database has a job, or does not answer."""
    if not files.is_folder(DATABASE_DIR):
        return False
    listed = as_user("slurm", "ls", "-A", files.on_disk(DATABASE_DIR), limit=_LIMIT)
    if listed.ok and "slurm_acct_db" not in listed.output.split():
        return False
    tables = as_database_user("mariadb", "-N", "-B", "-e", _TABLES, limit=_LIMIT)
    if not tables.ok:
        return True
    names = tables.output.split()
    query = "".join(f"SELECT 1 FROM slurm_acct_db.`{name}` LIMIT 1;\n" for name in names)  # noqa: S608 its own tables
    if not query:
        return False
    jobs = as_database_user("mariadb", "-N", "-B", limit=_LIMIT, stdin=query)
    return not jobs.ok or "1" in jobs.output.split()


def _remove_files() -> None:
    if "Written by tailrack." in (files.read(DBD_CONF) or ""):
        files.remove(DBD_CONF)
    for path in (DUMP, DATABASE_CONF, UNIT_ADDITIONS, CONTROLLER_ADDITIONS, WITHOUT_EXEC):
        files.remove(path)
    files.remove_folder(STATE)
