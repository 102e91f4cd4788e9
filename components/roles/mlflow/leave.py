"""Remove MLflow and its account.

The logged data stays, in folders that only root can enter, because another account may later get the uid of the
server's account.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath

from components.node import files, folders
from components.node.log import note
from components.node.parts import do_each
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.mlflow.paths import ACCOUNT, ARTIFACTS, DATA, PUBLISHED, URI_FILE
from components.roles.mlflow.remove import remove_mlflow


def leave(step: Step) -> None:
    """Remove them."""
    artifacts = (files.read(ARTIFACTS) or "").rstrip("\n")
    parts: list[Callable[[], object]] = [remove_mlflow, partial(files.remove, URI_FILE)]
    if artifacts:
        parts.append(partial(files.remove, f"{PurePosixPath(artifacts).parent}/{PUBLISHED}"))
    if user_named(ACCOUNT):
        parts += [partial(folders.take, path, 0o700) for path in (DATA, artifacts) if path and files.exists(path)]
        parts.append(_remove_account)
    do_each(*parts)


def _remove_account() -> None:
    if not attempt("userdel", ACCOUNT).ok:
        note(f"the account {ACCOUNT} stays because one of its processes is still running")
