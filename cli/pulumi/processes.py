"""Processes of the Pulumi CLI: who holds a stack, and how the run that this process began is ended as by Ctrl-C."""

from __future__ import annotations

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


def is_cli(pid: int) -> bool:
    """Whether a process of this machine is a Pulumi CLI; any process is taken for one where there is no /proc."""
    if not is_running(pid):
        return False
    try:
        return _program(Path(f"/proc/{pid}")) == CLI
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    except OSError:
        return True


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


def _program(folder: Path) -> str:
    """The name by which a process was started. OSError where it is gone."""
    return PurePath(os.fsdecode((folder / "cmdline").read_bytes()).split("\0")[0]).name


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(parent: int, program: str) -> Iterator[int]:
    """The processes that one has started, of a program's name."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started_by = _stat(folder)[1]
            name = _program(folder)
        except OSError:  # it has ended
            continue
        if int(started_by) == parent and name == program:
            yield int(folder.name)
