"""Copy a folder with rsync, or with rclone and the user's own config. Runs as the user."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from components.node.text import printable
from components.roles.scratch.copies import Copy
from components.roles.scratch.paths import COPIES

# rsync: files vanished while it copied, as old checkpoints do.
_VANISHED = 24
_MOST_REASON = 300
_PARTIAL = ".tailrack-partial"


def transfer(folder: Path, copy: Copy, limit: float | None = None) -> str:
    """Copy it. Return why it failed; empty if it did not. Files at the target that the source lacks stay.

    folder   the job's folder
    limit    seconds
    """
    source = folder / copy.source
    if not is_there(folder, copy):
        return f"the job has made no folder {copy.source}"
    if copy.is_remote:
        command = rclone("copy", "--exclude", f"/{COPIES}/**", "--", str(source), copy.target)
        return _run(command, limit, config=copy.config)
    try:
        Path(copy.target).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot make {copy.target}: {error.strerror}"
    options = (f"--partial-dir={_PARTIAL}", f"--exclude=/{COPIES}", f"--exclude={_PARTIAL}")
    return _run(("rsync", "-a", *options, "--", f"{source}/", f"{copy.target}/"), limit, accepted=_VANISHED)


def is_there(folder: Path, copy: Copy) -> bool:
    """Return whether the source is a folder."""
    return (folder / copy.source).is_dir()


def rclone(*words: str) -> tuple[str, ...]:
    """Return a command of rclone."""
    return ("rclone", "--log-level", "ERROR", *words)


def rclone_environment(config: str) -> Mapping[str, str]:
    """Return an environment that has only the config file: variables of a shell are gone after the job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RCLONE_")}
    return {**kept, **({"RCLONE_CONFIG": config} if config else {})}


def _run(command: tuple[str, ...], limit: float | None, *, config: str = "", accepted: int = 0) -> str:
    with tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=rclone_environment(config),
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "it took too long"
        except FileNotFoundError:
            return f"{command[0]} is not installed on this node; ask your administrator"
        if done.returncode in (0, accepted):
            return ""
        errors.seek(max(errors.seek(0, os.SEEK_END) - 4096, 0))
        lines = errors.read().decode("utf-8", "replace").splitlines()
    # rsync's last line only repeats that it failed.
    reasons = [line for line in lines if line.strip() and not line.startswith("rsync error:")] or lines
    return printable(reasons[-1] if reasons else f"{command[0]} ended with status {done.returncode}", _MOST_REASON)
