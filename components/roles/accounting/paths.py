"""Paths of the accounting database and of slurmdbd's starter. (The database's unit creates the socket's folder.)"""

from __future__ import annotations

from typing import BinaryIO

from components.node import files
from components.node.accounts import as_user
from components.node.run import Ended
from components.node.step.step import STATE_DIR

DATABASE_DIR = "/var/lib/slurm/accounting"
DATABASE_SOCKET = "/run/tailrack-database/socket"
DATABASE_CONF = "/etc/tailrack/database.cnf"
DATABASE = "tailrack-database"
DBD_CONF = "/etc/slurm/slurmdbd.conf"
WITHOUT_EXEC = "/usr/local/lib/tailrack/without-exec"
# Makes a dump for a backup.
DUMP = "/usr/local/lib/tailrack/backup.d/accounting"
# Records of this role.
STATE = f"{STATE_DIR}/accounting"
_MOST_BYTES = 65536


def as_database_user(program: str, *arguments: str, limit: float, stdin: str | BinaryIO = "") -> Ended:
    """Run a MariaDB client as the account that owns the server, its socket and its folder.

    A server can ask its client for files, and so gets only those of this account.
    """
    options = ("--no-defaults", f"--socket={files.on_disk(DATABASE_SOCKET)}", "--user=slurm")
    return as_user("slurm", program, *options, *arguments, limit=limit, most=_MOST_BYTES, stdin=stdin)
