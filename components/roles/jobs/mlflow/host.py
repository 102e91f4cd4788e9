"""Run MLflow on the head node, if the config turns it on.

The administrator logs in with the stack's password, each user with a generated one, which is in the file of the home
that MLflow's client reads (~/.mlflow/credentials) and in no job's environment.
"""

import re
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO

from components.node import files, folders, systemd
from components.node.accounts import as_user
from components.node.daemons import Daemon, answers, refuse_taken_port, run_daemon
from components.node.failure import Failure, do_each
from components.node.files import File
from components.node.log import note, printable
from components.node.passwd import make_daemon_account, remove_daemon_account, user_named
from components.node.run import Ended, attempt
from components.node.step.step import Step
from components.roles.access.users.accounts import HOME_LIMIT, Account, homes_of
from components.roles.jobs.mlflow.install import (
    ACCOUNT,
    ACCOUNTS,
    DATA,
    PROGRAM,
    STATE,
    UNIT,
    WHOLE,
    PackagesValues,
    install,
    python,
    stop,
)
from components.roles.network.firewall.ports import HeldPorts, hold_ports
from components.roles.storage.restore.host import load_dump

_USERS = f"{STATE}/users"
# It marks the files that this module may replace, so the text cannot change.
_MARKER = "# Written by tailrack: take this line out to keep a file of your own."
_PASSWORD = re.compile(r"^mlflow_tracking_password = (.*)$", re.MULTILINE)
# Seconds to write the logins, which may upgrade the database.
_LIMIT = 900
_MOST_REASON = 300


@dataclass(frozen=True)
class LoginsValues(PackagesValues):
    """The users, and the folder of the share, which contains the homes.

    mlflow_admin_password   secret
    """

    mlflow_admin_password: str
    users_lines: list[Account]
    users_homes: str
    share_path: str


def create_credentials(values: LoginsValues) -> None:
    """Write each user's credentials in the client's format to a file of root's, and remove those of former users."""
    files.make_folder(STATE, 0o700)
    files.make_folder(_USERS, 0o700)
    names = {account.name for account in values.users_lines}
    for name in sorted(names):
        if not files.read(f"{_USERS}/{name}"):
            credentials = (
                f"{_MARKER}\n[mlflow]\nmlflow_tracking_username = {name}\n"
                f"mlflow_tracking_password = {secrets.token_hex(32)}"
            )
            files.write(f"{_USERS}/{name}", credentials, 0o600)
    for name in files.names_in(_USERS):
        if name not in names:
            files.remove(f"{_USERS}/{name}")


def update_accounts(step: Step, values: LoginsValues) -> None:
    """Write the logins into MLflow's database, with MLflow's code and as its account."""
    logins = [f"admin {values.mlflow_admin_password}\n"]
    for name in files.names_in(_USERS):
        password = _PASSWORD.search(files.read(f"{_USERS}/{name}") or "")
        logins.append(f"{name} {password[1] if password else ''}\n")
    python, program = (files.on_disk(path) for path in (f"{PROGRAM}/bin/python", ACCOUNTS))
    environment = {"HOME": "/nonexistent", "MLFLOW_DISABLE_TELEMETRY": "true"}
    words = (python, "-I", program, files.on_disk(DATA), values.release)
    ended = as_user(ACCOUNT, *words, limit=_LIMIT, stdin="".join(logins), environment=environment)
    sys.stderr.write(ended.output)
    if not ended.ok:
        last = f"{ended.output}{ended.errors}".rstrip("\n").rpartition("\n")[2]
        raise Failure(
            f"MLflow's database cannot be used: {printable(last, _MOST_REASON)}",
            f"see the error above and 'df -h {DATA}' on {step.host}; to start empty, move {DATA}/mlflow.db away; then "
            "run up again",
        )


# Runs as the user. A credentials file without the marker, or anything else at that path, stays as it is.
_WRITE = """umask 077
cd "$HOME"
mkdir -p .mlflow
cd .mlflow
if [ -e credentials ] || [ -L credentials ]; then
    [ -f credentials ] || exit 3
    grep -qxF "$1" credentials || exit 3
fi
cat >credentials.tailrack
mv -fT credentials.tailrack credentials"""


def publish_credentials(values: LoginsValues) -> None:
    """Write each user's credentials into the home, as the user."""
    for account in values.users_lines:
        home = files.on_disk(f"{homes_of(values.users_homes, values.share_path)}/{account.name}")
        bash = ("bash", "--norc", "--noprofile", "-euc", _WRITE, "-", _MARKER)
        environment = {"HOME": home, "PATH": "/usr/bin:/bin"}
        credentials = files.read(f"{_USERS}/{account.name}") or ""
        if not as_user(account.name, *bash, limit=HOME_LIMIT, stdin=credentials, environment=environment).ok:
            note(
                f"{account.name}'s ~/.mlflow/credentials stays as it is: it is not tailrack's file, or the disk is full"
            )


ARTIFACTS = f"{STATE}/artifacts"
# The file on the share with MLflow's address, which exists only while MLflow answers, and each node's link to it.
PUBLISHED = ".tailrack/mlflow-uri"
URI_FILE = "/etc/tailrack/mlflow-uri"
# Files that the server reads when it starts.
SETTINGS = "/etc/tailrack/mlflow"
START = "/usr/local/lib/tailrack/mlflow-start"
DUMP = "/usr/local/lib/tailrack/backup.d/mlflow"
_BACKUP = "tailrack-backup.service"
_RESTORE_LIMIT = 900
# Seconds to answer: the first start creates the database.
_ANSWER_LIMIT = 600
# Seconds for a backup, which may be the first one.
_BACKUP_LIMIT = 3600
# Without the version file, the database is upgraded to the installed release.
_REPLACE = """umask 077; cat >"$1/mlflow.db.new"; rm -f "$1"/mlflow.db-* "$1/version"
mv -fT "$1/mlflow.db.new" "$1/mlflow.db\""""


@dataclass(frozen=True)
class MlflowValues(LoginsValues, HeldPorts):
    """The settings of MLflow.

    mlflow_port            its port
    mlflow_unit, mlflow_login, mlflow_start, mlflow_dump, mlflow_accounts   texts of its unit, configuration, start
                           program, backup script, and of the program that writes logins into its database
    mlflow_start_version   changes with the start program, and restarts the server
    head_address, node_name   tailnet address and name of this machine
    """

    mlflow_enabled: bool
    mlflow_port: int
    mlflow_unit: str
    mlflow_login: str
    mlflow_start: str
    mlflow_start_version: str
    mlflow_accounts: str
    mlflow_dump: str
    head_address: str
    node_name: str

    @property
    def published(self) -> str:
        """Return the path of the file with MLflow's address for jobs."""
        return f"{self.share_path}/{PUBLISHED}"

    @property
    def artifacts(self) -> str:
        """Return the server's folder on the share."""
        return f"{self.share_path}/mlflow"

    @property
    def daemon(self) -> Daemon:
        read = (f"{systemd.UNITS}/{UNIT}", f"{SETTINGS}/basic_auth.ini", f"{SETTINGS}/environment", WHOLE)
        return Daemon(UNIT, self.head_address, self.mlflow_port, "/health", "mlflow.port", read, limit=_ANSWER_LIMIT)


def services(step: Step, values: MlflowValues) -> None:
    """Run MLflow after all other services: its download takes a minute, and its failure must not stop them."""
    if values.mlflow_enabled:
        step.later.append(lambda: serve(step, values))
    step.at_end.append(lambda: withdraw_if_silent(values))


def withdraw_if_silent(values: MlflowValues) -> None:
    """Remove MLflow's address for jobs if it does not answer."""
    if not (values.mlflow_enabled and systemd.is_active(UNIT) and answers(values.daemon)):
        files.remove(values.published)


def serve(step: Step, values: MlflowValues) -> None:
    """Install and start MLflow."""
    # Checked before the download, which takes a minute.
    refuse_taken_port(step, values.daemon)
    make_daemon_account(ACCOUNT)
    create_credentials(values)
    files.write(ARTIFACTS, values.artifacts, 0o600)
    # Set the owner again, because the account has another uid on a new machine.
    for folder in (DATA, values.artifacts):
        folders.give(ACCOUNT, 0o700, folder)
    install(step, values)
    # Installed before `restore` moves the lost head node's database out of the folder that backups read, so that the
    # database stays in the backup even if MLflow does not start.
    is_new = not files.exists(DUMP)
    files.write(DUMP, values.mlflow_dump, 0o755)
    files.write_all([File(START, values.mlflow_start, 0o755), File(ACCOUNTS, values.mlflow_accounts, 0o755)])
    restore_dump(step)
    update_accounts(step, values)
    _write_settings(values)
    run_daemon(step, values.daemon, partial(hold_ports, step, values))
    # At the end of the step, `withdraw_if_silent` removes it again if MLflow does not answer.
    files.make_folder(str(PurePosixPath(values.published).parent))
    files.write(values.published, f"http://{values.head_address}:{values.mlflow_port}")
    publish_credentials(values)
    if is_new:
        _back_up()


def _write_settings(values: MlflowValues) -> None:
    unit = values.mlflow_unit.replace("@ARTIFACTS@", values.artifacts).replace("@PROGRAM@", PROGRAM)
    unit = unit.replace("@PYTHON@", python()).replace("@PYTHON_NAME@", PurePosixPath(python()).name)
    environment = (
        f"ADDRESS={values.head_address}\nPORT={values.mlflow_port}\nNAME={values.node_name}\n"
        f"# mlflow-start {values.mlflow_start_version}"
    )
    files.make_folder(SETTINGS)
    files.write_all(
        [
            File(f"{systemd.UNITS}/{UNIT}", unit),
            File(f"{SETTINGS}/basic_auth.ini", values.mlflow_login),
            File(f"{SETTINGS}/environment", environment),
        ]
    )


def restore_dump(step: Step) -> None:
    """Replace the database with the lost head node's from the backup."""

    def load(dump: BinaryIO) -> Ended:
        stop()
        return as_user(ACCOUNT, "bash", "-euc", _REPLACE, "-", files.on_disk(DATA), limit=_RESTORE_LIMIT, stdin=dump)

    load_dump(step, "mlflow.db", "MLflow's database", load, f"free space in {DATA}")


def _back_up() -> None:
    """Back up now: this `up` made its backup before MLflow had a database, and the next one is an hour away."""
    if not files.exists(f"{systemd.UNITS}/{_BACKUP}"):
        return
    if not attempt("systemctl", "start", _BACKUP, limit=_BACKUP_LIMIT).ok:
        note("MLflow is not in the backup yet: run 'tailrack-backup status' to see why")


def compute(step: Step, share_mount: str) -> None:
    """Create the link from which task-prolog reads MLflow's address.

    The head node writes and removes the file behind the link, so no node waits for MLflow.
    """
    files.link(URI_FILE, f"{share_mount}/{PUBLISHED}")


def leave(step: Step) -> None:
    """Stop MLflow, and remove its account.

    The logged data stays, in folders that only root can enter, because another account may later get the same uid.
    """
    artifacts = (files.read(ARTIFACTS) or "").rstrip("\n")
    parts: list[Callable[[], object]] = [partial(systemd.retire, UNIT)]
    if artifacts:
        parts.append(partial(files.remove, f"{PurePosixPath(artifacts).parent}/{PUBLISHED}"))
    if user_named(ACCOUNT):
        parts += [partial(folders.take, path, 0o700) for path in (DATA, artifacts) if path and files.exists(path)]
        parts.append(partial(remove_daemon_account, ACCOUNT))
    do_each(*parts)
