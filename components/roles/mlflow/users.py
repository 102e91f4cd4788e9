"""MLflow's logins: the administrator's with the stack's password, and one for each user with a generated password.

Users find theirs in the home, in the file that MLflow's client reads (~/.mlflow/credentials); it is in no job's
environment.
"""

from __future__ import annotations

import re
import secrets
import sys
from dataclasses import dataclass

from components.node import files
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.log import note, printable
from components.node.step.step import Step
from components.roles.mlflow.install import ACCOUNT, ACCOUNTS, DATA, PROGRAM, STATE, PackagesValues
from components.roles.users.accounts import HOME_LIMIT, Account

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
    nfs_exports_path: str


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
        home = files.on_disk(f"{values.users_homes or f'{values.nfs_exports_path}/home'}/{account.name}")
        bash = ("bash", "--norc", "--noprofile", "-euc", _WRITE, "-", _MARKER)
        environment = {"HOME": home, "PATH": "/usr/bin:/bin"}
        credentials = files.read(f"{_USERS}/{account.name}") or ""
        if not as_user(account.name, *bash, limit=HOME_LIMIT, stdin=credentials, environment=environment).ok:
            note(
                f"{account.name}'s ~/.mlflow/credentials stays as it is: it is not tailrack's file, or the disk is full"
            )
