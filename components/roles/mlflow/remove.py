"""Remove the server and its program; the logged data stays."""

from __future__ import annotations

from components.node import files, systemd
from components.roles.mlflow.paths import ACCOUNTS, DUMP, PROGRAM, SETTINGS, START, UNIT


def remove_mlflow() -> None:
    """Remove them."""
    systemd.retire(UNIT)
    files.remove_folder(SETTINGS)
    files.remove_folder(PROGRAM)
    for path in (START, ACCOUNTS, DUMP):
        files.remove(path)
