"""The batch job of `tailrack session`, and the Jupyter server that it runs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from components.roles.tailrack_command.slurm import SlurmError

FOLDER = ".local/state/tailrack/session"
MAKE_JUPYTER = "python3 -m venv ~/venv && ~/venv/bin/pip install jupyterlab"
_KEPT_SECONDS = 30 * 86400
_MOST_BYTES = 65536
_WAITS = "#!/bin/bash\nexec sleep infinity\n"
# The token is in a file, because every user of the node can read arguments. Jupyter takes the next free port if another
# program has this one, and writes the port and the token into a file in its folder for this.
_SERVES = """#!/bin/bash
umask 077
place={folder}/$SLURM_JOB_ID
mkdir -p "$place" || exit
trap 'rm -rf -- "$place"' EXIT
trap 'exit 143' TERM
export JUPYTER_TOKEN_FILE=$place/token JUPYTER_RUNTIME_DIR=$place
unset JUPYTER_TOKEN
od -An -v -tx1 -N24 /dev/urandom | tr -d ' \\n' >"$place/token" || exit
{program} --no-browser --ip=127.0.0.1 --port=$((61000 + SLURM_JOB_ID % 4500))
"""


@dataclass(frozen=True)
class Server:
    """A Jupyter server that runs. `token` is empty if its user has set a password."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """Return its address on the user's computer, behind `ssh -L`."""
        return f"http://127.0.0.1:{self.port}/lab" + (f"?token={self.token}" if self.token else "")


def script(home: Path, jupyter: str = "", image: str = "") -> str:
    """Return the batch script.

    jupyter   Jupyter's program; empty for a job that only waits
    image     the container image in which Jupyter runs; empty for none
    """
    if not jupyter:
        return _WAITS
    inside = (*container(image), "--container-env=JUPYTER_TOKEN_FILE,JUPYTER_RUNTIME_DIR")
    words = ["srun", *inside, jupyter] if image else [jupyter]
    return _SERVES.format(folder=shlex.quote(str(home / FOLDER)), program=shlex.join(words))


def container(image: str) -> tuple[str, ...]:
    """Return the options of srun for a step in a container image."""
    return f"--container-image={image}", "--container-mount-home", "--no-container-remap-root"


def find_jupyter(home: Path) -> str:
    """Return the user's Jupyter: of the active virtual environment, of ~/venv, or on PATH. Raise SlurmError."""
    environments = (os.environ.get("VIRTUAL_ENV", ""), str(home / "venv"))
    for path in [f"{folder}/bin/jupyter-lab" for folder in environments if folder.startswith("/")]:
        if os.access(path, os.X_OK):
            return path
    if path := shutil.which("jupyter-lab") or "":
        return path
    raise SlurmError(f"you have no JupyterLab; make one with '{MAKE_JUPYTER}', or name an image that has it (--image)")


def prepare(home: Path) -> str:
    """Make the folder of sessions, and return the name of a job's output in it, as sbatch reads it."""
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.glob("*.out"):
            if path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SlurmError(f"cannot make the folder {folder}: {error.strerror}") from None
    # sbatch replaces a % in a path.
    return f"{str(folder).replace('%', '%%')}/%j.out"


def read_server(home: Path, job: int) -> Server | None:
    """Return a job's Jupyter server; None until it runs. Raise SlurmError if it lets all users of the node in."""
    for row in _rows(home / FOLDER / str(job)):
        port, token = row.get("port"), row.get("token")
        if type(port) is not int or not isinstance(token, str):
            continue
        if not token and not row.get("password"):
            raise SlurmError(
                "your Jupyter config turns the token off, so every user of the node could run programs as you; "
                "remove 'token' from ~/.jupyter/jupyter_server_config.py"
            )
        return Server(port, token)
    return None


def _rows(folder: Path) -> Iterator[dict[str, object]]:
    # Older releases of Jupyter write nbserver-PID.json. The file is not complete at once.
    for path in sorted(folder.glob("*server-*.json")):
        with suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
            row = json.loads(file.read(_MOST_BYTES))
            if isinstance(row, dict):
                yield row
