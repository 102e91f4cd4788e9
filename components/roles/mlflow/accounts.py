"""MLflow's database brought to its release, and in it an account for each user of the cluster.

Usage: mlflow-accounts FOLDER VERSION <ACCOUNTS     as the server's account, by MLflow's Python

FOLDER has the database; VERSION is MLflow's; ACCOUNTS has `name password` lines, the administrator's first. Whose
account was made here and who is in the list no more cannot log in: what that user has logged stays.
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

DATABASE = "mlflow.db"


class Accounts(Protocol):
    """As much of MLflow's store of accounts as is used here."""

    def has_user(self, username: str) -> bool: ...
    def authenticate_user(self, username: str, password: str) -> bool: ...
    def create_user(self, username: str, password: str, is_admin: bool) -> object: ...
    def update_user(self, username: str, password: str, is_admin: bool) -> object: ...


def main(words: Sequence[str]) -> int:
    """Do both; what goes wrong is MLflow's or SQLite's own exception, whose last line says what."""
    folder, version = Path(words[0]), words[1]
    wanted = [(name, password) for name, password in (line.split() for line in sys.stdin)]
    upgrade(folder, version)
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore  # type: ignore[import-not-found]

    store = SqlAlchemyStore()
    store.init_db(f"sqlite:///{folder / DATABASE}")
    bring(store, wanted, folder / "accounts")
    return 0


def upgrade(folder: Path, version: str) -> None:
    """Bring a database of another release of MLflow to this one, beside a copy of what it was."""
    database, of = folder / DATABASE, folder / "version"
    before = of.read_text(encoding="utf-8").strip() if of.exists() else ""
    if database.exists() and before != version:
        from mlflow.store.db.utils import (  # type: ignore[import-not-found]
            _upgrade_db,
            create_sqlalchemy_engine_with_retry,
        )

        with (
            closing(sqlite3.connect(database)) as source,
            closing(sqlite3.connect(folder / f"{DATABASE}.before-{version}")) as copy,
        ):
            source.backup(copy)
        _upgrade_db(create_sqlalchemy_engine_with_retry(f"sqlite:///{database}"))
    of.write_text(f"{version}\n", encoding="utf-8")


def bring(store: Accounts, wanted: Iterable[tuple[str, str]], made_before: Path) -> None:
    """Have an account for each name, the first the administrator's; those of names that are gone are closed.

    made_before   file with the names of accounts that were made here, one a line
    """
    passwords = dict(wanted)
    made = made_before.read_text(encoding="utf-8").split() if made_before.exists() else []
    # Noted first: one that is there and not noted would never be closed.
    made_before.write_text("".join(f"{name}\n" for name in dict.fromkeys([*made, *passwords])), encoding="utf-8")
    for place, (name, password) in enumerate(passwords.items()):
        if not store.has_user(name):
            store.create_user(name, password, is_admin=place == 0)
        elif not store.authenticate_user(name, password):
            store.update_user(name, password, is_admin=place == 0)
    for name in made:
        if name not in passwords and store.has_user(name):
            store.update_user(name, secrets.token_hex(32), is_admin=False)
