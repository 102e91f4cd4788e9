"""Install MLflow into a folder that root owns, from wheels whose digests are part of the step.

No fetched code runs during the installation, and the server's account cannot change the folder.
"""

import hashlib
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from components.node import files, folders
from components.node.failure import Failure
from components.node.fetch import fetch_reason, fetch_remedy
from components.node.log import STATE_DIR, note
from components.node.run import attempt
from components.node.step.step import Step

UNIT = "tailrack-mlflow.service"
# The server's account, and its folder with the database.
ACCOUNT = "tailrack-mlflow"
DATA = "/var/lib/tailrack-mlflow"
# Root's folder on the head node: users' passwords, and the path of the artifacts on the share.
STATE = f"{STATE_DIR}/mlflow"
PROGRAM = "/usr/local/lib/tailrack/mlflow-program"
ACCOUNTS = "/usr/local/lib/tailrack/mlflow-accounts"
# It has the digest of a complete installation.
WHOLE = f"{PROGRAM}/whole"
# Seconds to fetch 100 MB over a slow connection and to compile it.
_LIMIT = 1500
_TIMED_OUT = 124


@dataclass(frozen=True)
class PackagesValues:
    """MLflow's packages.

    mlflow_requirements   pip's requirements file
    mlflow_index          package index for pip: a URL, a folder on this machine, or empty for pip's default
    """

    mlflow_requirements: str
    mlflow_index: str

    @property
    def release(self) -> str:
        """Return MLflow's release from the list of packages."""
        found = re.search(r"^mlflow==([^ ]*)", self.mlflow_requirements, re.MULTILINE)
        return found[1] if found else ""

    @property
    def digest(self) -> str:
        """Return a digest that changes with the list of packages and with the machine's Python."""
        return hashlib.sha256(f"{self.mlflow_requirements}\n{python()}\n".encode()).hexdigest()


def python() -> str:
    """Return the path of the machine's Python without links."""
    return files.followed("/usr/bin/python3")


def install(step: Step, values: PackagesValues) -> None:
    """Install MLflow, unless this list of packages is installed."""
    if (files.read(WHOLE) or "").strip() == values.digest:
        return
    index = _options_for(step, values.mlflow_index)
    stop()
    files.remove_folder(PROGRAM)
    files.make_folder(PROGRAM)
    files.write(f"{PROGRAM}/requirements.txt", values.mlflow_requirements)
    note(f"installing MLflow {values.release}")
    folder = files.on_disk(PROGRAM)
    created = attempt("python3", "-I", "-m", "venv", folder)
    if not created.ok:
        sys.stderr.write(created.output)
        raise Failure(
            f"cannot create a Python environment in {PROGRAM}",
            f"see the error above and 'df -h /usr/local' on {step.host}, then run up again",
        )
    ended = attempt(
        *(f"{folder}/bin/python", "-I", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-cache-dir"),
        *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--retries", "2", "--timeout", "20", *index),
        *("-r", f"{folder}/requirements.txt"),
        limit=_LIMIT,
        keep_errors=True,
    )
    if not ended.ok:
        output = f"{ended.output}{ended.errors}"
        sys.stderr.write(output)
        files.remove_folder(PROGRAM)
        if ended.status == _TIMED_OUT:
            output = f"ERROR: pip took longer than {_LIMIT}s"
        reason = fetch_reason(output)
        remedy = (
            f"let {step.host} reach a package index, or set tailrack:mlflow.index to another index or a folder of "
            "wheels; then run up again"
        )
        raise Failure(f"MLflow cannot be installed here: {reason}", fetch_remedy(reason, remedy, step.host))
    files.write(WHOLE, values.digest)


def stop() -> None:
    """Stop the server: it must not load files of two installations or of two databases."""
    if not attempt("systemctl", "stop", UNIT, quiet=True).ok:
        note("MLflow is not running")


def _options_for(step: Step, index: str) -> list[str]:
    if not index:
        return ["--no-input"]
    if not index.startswith("/"):
        return ["--no-input", "--index-url", index]
    _refuse_open_folder(step, index)
    return ["--no-input", "--no-index", "--find-links", files.on_disk(index)]


def _refuse_open_folder(step: Step, path: str) -> None:
    """Raise Failure if another account could replace the wheels or a folder above them while pip reads them."""
    if not Path(files.on_disk(path)).is_dir():
        raise Failure(
            f"the folder {path}, which tailrack:mlflow.index names, is not on {step.host}",
            "put the wheels there (docs/failures.md#mlflow), or remove the key; then run up again",
        )
    for part in reversed(folders.parts_of(path)):
        if part.type != stat.S_IFDIR or part.uid or part.mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Failure(
                f"{part.path} can be changed by others than root on {step.host} (owner {part.uid}, mode {part.mode:o}, "
                "or a link)",
                "set tailrack:mlflow.index to a folder that only root can change; then run up again",
            )
