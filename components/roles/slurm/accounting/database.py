"""A database server for slurmdbd alone.

Slurm's account runs it; only that account and root can connect, by a socket. It has no passwords and listens on no
network. Another database server of the machine is not touched.
"""

import re
import sys
from typing import BinaryIO

from components.node import files, packages, systemd
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.folders import give
from components.node.log import STATE_DIR, note
from components.node.run import Ended, attempt, exists
from components.node.step.step import Step
from components.roles.slurm.slurm.folders import take_slurm_folder
from components.roles.storage.restore.host import load_dump

DATABASE_DIR = "/var/lib/slurm/accounting"
DATABASE_SOCKET = "/run/tailrack-database/socket"
DATABASE_CONF = "/etc/tailrack/database.cnf"
DATABASE = "tailrack-database"
WITHOUT_EXEC = "/usr/local/lib/tailrack/without-exec"
# Makes a dump for a backup.
DUMP = "/usr/local/lib/tailrack/backup.d/accounting"
# Records of this role.
STATE = f"{STATE_DIR}/accounting"
_MOST_BYTES = 65536
# Limits in MB of the database's memory, which is a quarter of the machine's.
_LEAST_MB, _MOST_MB = 128, 4096
_CREATE_LIMIT = 120
_RESTORE_LIMIT = 3600
_NEW = f"{DATABASE_DIR}.new"
_LIMITS = """
GRANT ALL PRIVILEGES ON slurm_acct_db.* TO slurm@localhost;
REVOKE ALL PRIVILEGES ON *.* FROM slurm@localhost;
REVOKE GRANT OPTION ON *.* FROM slurm@localhost;
DELETE FROM mysql.proxies_priv WHERE User = 'slurm';
FLUSH PRIVILEGES;
"""


def as_database_user(program: str, *arguments: str, limit: float, stdin: str | BinaryIO = "") -> Ended:
    """Run a MariaDB client as the account that owns the server, its socket and its folder.

    A server can ask its client for files, and so gets only those of this account.
    """
    options = ("--no-defaults", f"--socket={files.on_disk(DATABASE_SOCKET)}", "--user=slurm")
    return as_user("slurm", program, *options, *arguments, limit=limit, most=_MOST_BYTES, stdin=stdin)


def install(step: Step, *more: str) -> None:
    """Install the server's programs alone, which bring no unit, folder or account, and more packages."""
    names = list(more)
    if not all(exists(program) for program in ("mariadbd", "mariadb-install-db", "mariadb")):
        packages.refresh_lists(step.host)
        names += map(_package, ("mariadb-server-core", "mariadb-client-core"))
    if names:
        packages.ensure(step.host, *names)


def _package(name: str) -> str:
    """Return the name of a package. Older distributions have the version in it."""
    if packages.candidate_of(name):
        return name
    names = attempt("apt-cache", "pkgnames", f"{name}-").output.split()
    versions = [found[1] for each in names if (found := re.search(r"-([0-9.]+)$", each))]
    newest = max(versions, key=lambda version: [int(part or 0) for part in version.split(".")], default="")
    return f"{name}-{newest}" if newest else name


def start(step: Step) -> None:
    """Start the server with its configuration, and create the database first if it is missing."""
    changed = files.write(DATABASE_CONF, _configuration()) or step.changed
    make_database(step)
    systemd.reload(f"{DATABASE}.service")
    systemd.enable(f"{DATABASE}.service")
    if not attempt("systemctl", "restart" if changed else "start", DATABASE).ok:
        raise Failure(
            "the accounting database does not start",
            f"see 'journalctl -u {DATABASE}' on {step.host}, then run up again",
        )


def _configuration() -> str:
    # Prefix `loose_` makes servers ignore keys that their version lacks. slurmdbd stops if snapshot isolation is on.
    return f"""# Written by tailrack.
[mariadbd]
datadir={DATABASE_DIR}
socket={DATABASE_SOCKET}
pid-file={DATABASE_SOCKET.removesuffix("socket")}pid
skip-networking
character-set-server=utf8mb4
innodb_buffer_pool_size={memory_mb()}M
innodb_lock_wait_timeout=900
max_allowed_packet=16M
loose_innodb_snapshot_isolation=OFF"""


def memory_mb() -> int:
    """Return the size of the database's memory."""
    total = re.search(r"^MemTotal: *(\d+)", files.read("/proc/meminfo") or "", re.MULTILINE)
    return min(max(int(total[1]) // 4096 if total else 0, _LEAST_MB), _MOST_MB)


def make_database(step: Step) -> None:
    """Create the database in a folder beside it and rename that at the end.

    So a folder of this name is always complete.
    """
    take_slurm_folder()
    if files.exists(DATABASE_DIR):
        give("slurm", 0o700, DATABASE_DIR)
        if as_user("slurm", "ls", "-d", files.on_disk(f"{DATABASE_DIR}/mysql"), limit=10).ok:
            return
    note(f"creating the database {DATABASE_DIR}")
    files.remove_folder(_NEW)
    give("slurm", 0o700, _NEW)
    options = ("--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=socket")
    program = ("mariadb-install-db", "--no-defaults", f"--datadir={files.on_disk(_NEW)}", *options)
    failure = Failure(
        f"cannot create the accounting database in {DATABASE_DIR}",
        f"make room there on {step.host} if its disk is full (df -h {DATABASE_DIR}), then run up again",
    )
    ended = as_user("slurm", *program, "--auth-root-socket-user=slurm", limit=_CREATE_LIMIT)
    if not ended.ok:
        sys.stderr.write(ended.output)
        raise failure
    try:
        files.rename(_NEW, DATABASE_DIR)
    except OSError as error:
        note(str(error))
        raise failure from error


def limit_account(step: Step) -> None:
    """Limit slurmdbd's account to its own tables.

    slurmdbd runs SQL from requests (`sacctmgr archive load`), which could write files otherwise. Open connections keep
    their rights until slurmdbd restarts with its new unit. This needs the database's root, so the client runs as root.
    Account slurm can replace the socket: --local-infile=0 keeps a server there from reading files through the client.
    """
    client = ("mariadb", "--no-defaults", "--local-infile=0", f"--socket={files.on_disk(DATABASE_SOCKET)}")
    if not attempt(*client, "--user=root", stdin=_LIMITS).ok:
        raise Failure(
            "cannot limit slurmdbd's database account to its own tables",
            f"see 'journalctl -u {DATABASE}' on {step.host}, then run up again",
        )


def restore_dump(step: Step) -> None:
    """Load the dump from a lost head node's backup."""

    def load(dump: BinaryIO) -> Ended:
        return as_database_user("mariadb", limit=_RESTORE_LIMIT, stdin=dump)

    load_dump(step, "accounting.sql", "the accounting database", load, "see the error above")
