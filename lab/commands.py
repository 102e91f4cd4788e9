"""Commands on this machine."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import LabError


def run(
    command: Sequence[str],
    *,
    root: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hint: str = "",
) -> str:
    """Run `command` (as root, by sudo where needed, if `root`) and return its stdout.

    `env` is added to this process's environment. Raises LabError with the last lines of its output, and `hint`.
    """
    if root and os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise LabError(f"`{command[0]}` needs root and there is no sudo; run this as root")
        command = ["sudo", "-n", *(f"{key}={value}" for key, value in (env or {}).items()), *command]
    try:
        done = subprocess.run(
            list(command),
            env={**os.environ, **(env or {})},
            cwd=cwd,
            text=True,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabError(f"`{command[0]}` is not installed{hint and '; ' + hint}") from error
    if done.returncode != 0:
        tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise LabError(f"`{' '.join(command[:4])}` failed ({done.returncode}): {tail}{hint and '; ' + hint}")
    return done.stdout


def apt_install(packages: Sequence[str]) -> None:
    """Install Debian packages on this machine.

    Raises LabError where there is no apt-get or it fails.
    """
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    hint = f"install {' '.join(packages)} by hand"
    run(["apt-get", "update"], root=True, env=env, hint=hint)
    run(["apt-get", "install", "-y", "--no-install-recommends", *packages], root=True, env=env, hint=hint)
