"""Processes of the Pulumi CLI: who holds a stack, and how the run that this process began is ended as by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath

CLI, PROVIDER = "pulumi", "pulumi-resource-command"
# Seconds until the CLI says that it takes no more steps; it does so at once.
TAKEN_SECONDS = 10


def end_run(stopping: threading.Event) -> None:
    """End the CLI's run: it starts no more steps, and those that its provider is at fail. Blocks for moments.

    A Ctrl-C is not enough: the CLI then waits for its provider, which does not give up what it has begun. A second one
    would leave the step in the state as one that nobody knows the end of. Where there is no /proc nothing is done.

    stopping   set once the CLI has said that it stops; a second signal after that would kill it
    """
    for cli in list(_children(os.getpid(), CLI)):
        if not stopping.is_set():
            _signal(cli, signal.SIGINT)
            stopping.wait(TAKEN_SECONDS)
        for provider in list(_children(cli, PROVIDER)):
            _signal(provider, signal.SIGKILL)


def lock_owner(lock: Path) -> int:
    """Return the process that a lock of the CLI's names; 0 for a lock that was cut off or holds something else."""
    try:
        content = json.loads(lock.read_bytes())
    except (ValueError, RecursionError):
        return 0
    pid = content.get("pid") if isinstance(content, dict) else None
    return pid if isinstance(pid, int) else 0


def is_running(pid: int) -> bool:
    """Whether a process of this machine is there, of whichever user, and has not ended."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0 and not _ended(pid)


def _ended(pid: int) -> bool:
    """Whether a process is over and only waits for its parent to take notice (told by Linux alone)."""
    try:
        return _stat(Path(f"/proc/{pid}"))[0] == "Z"
    except OSError:
        return False


def _stat(folder: Path) -> list[str]:
    """What Linux says of a process after its name: its state, its parent, and so on. OSError where it is gone."""
    return (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(parent: int, program: str) -> Iterator[int]:
    """The processes that one has started, of a program's name."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started_by = _stat(folder)[1]
            words = os.fsdecode((folder / "cmdline").read_bytes()).split("\0")
        except OSError:  # it has ended
            continue
        if int(started_by) == parent and PurePath(words[0]).name == program:
            yield int(folder.name)
