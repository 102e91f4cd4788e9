"""Upgrade MLflow's database to the installed release, and keep an account in it for each user of the cluster.

Usage: mlflow-accounts FOLDER VERSION <ACCOUNTS     as the server's account, with MLflow's Python

FOLDER contains the database; VERSION is MLflow's; ACCOUNTS has `name password` lines, the administrator's first. If
this program created an account and its user is no longer in the list, the user cannot log in; logged data stays.
"""

import secrets
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

DATABASE = "mlflow.db"


class Accounts(Protocol):
    """The part of MLflow's account store that this program uses."""

    def has_user(self, username: str) -> bool: ...
    def authenticate_user(self, username: str, password: str) -> bool: ...
    def create_user(self, username: str, password: str, is_admin: bool) -> object: ...
    def update_user(self, username: str, password: str, is_admin: bool) -> object: ...


def main(argv: Sequence[str]) -> int:
    """Run both steps. Errors are exceptions of MLflow or SQLite with the cause in their last line."""
    folder, version = Path(argv[0]), argv[1]
    wanted = [(name, password) for name, password in (line.split() for line in sys.stdin)]
    upgrade(folder, version)
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore  # type: ignore[import-not-found]

    store = SqlAlchemyStore()
    store.init_db(f"sqlite:///{folder / DATABASE}")
    update_accounts(store, wanted, folder / "accounts")
    return 0


def upgrade(folder: Path, version: str) -> None:
    """Upgrade a database of another MLflow release, after copying it to a file beside it."""
    database, version_file = folder / DATABASE, folder / "version"
    old_version = version_file.read_text(encoding="utf-8").strip() if version_file.exists() else ""
    if database.exists() and old_version != version:
        from mlflow.store.db.utils import (  # type: ignore[import-not-found]
            _upgrade_db,
            create_sqlalchemy_engine_with_retry,
        )

        kept = folder / f"{DATABASE}.before-{version}"
        # An upgrade that broke off has left its copy: the database is no longer what it was.
        if not kept.exists():
            new = kept.with_name(f"{kept.name}.new")
            with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(new)) as copy:
                source.backup(copy)
            new.rename(kept)
        _upgrade_db(create_sqlalchemy_engine_with_retry(f"sqlite:///{database}"))
    version_file.write_text(f"{version}\n", encoding="utf-8")


def update_accounts(store: Accounts, wanted: Iterable[tuple[str, str]], created_file: Path) -> None:
    """Create or update an account for each name, the first as administrator, and lock accounts that are not wanted.

    created_file   names of the accounts that this program created, one a line
    """
    passwords = dict(wanted)
    created = created_file.read_text(encoding="utf-8").split() if created_file.exists() else []
    # Written before the accounts are created: an account that is missing in this file would never be locked.
    created_file.write_text("".join(f"{name}\n" for name in dict.fromkeys([*created, *passwords])), encoding="utf-8")
    for index, (name, password) in enumerate(passwords.items()):
        if not store.has_user(name):
            store.create_user(name, password, is_admin=index == 0)
        elif not store.authenticate_user(name, password):
            store.update_user(name, password, is_admin=index == 0)
    for name in created:
        if name not in passwords and store.has_user(name):
            store.update_user(name, secrets.token_hex(32), is_admin=False)
