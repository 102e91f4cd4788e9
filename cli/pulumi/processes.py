"""Processes of the Pulumi CLI: find the one that holds a stack, and end this process's run as by Ctrl-C."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath

CLI, PROVIDER = "pulumi", "pulumi-resource-command"
# Limit in seconds for the CLI's report that it stops, which normally comes at once.
TAKEN_SECONDS = 10


def end_run(stopping: threading.Event) -> None:
    """End the CLI's run: it starts no more steps, and the running steps of its provider fail. Blocks for moments.

    Ctrl-C is not enough, because the CLI then waits for its provider, which does not give up a step. A second Ctrl-C
    would leave the step as pending in the state. Without /proc this does nothing.

    stopping   set when the CLI reports that it stops; a second signal after that would kill it
    """
    for cli in list(_children(os.getpid(), CLI)):
        if not stopping.is_set():
            _signal(cli, signal.SIGINT)
            stopping.wait(TAKEN_SECONDS)
        for provider in list(_children(cli, PROVIDER)):
            _signal(provider, signal.SIGKILL)


def end_plugins(marker: str) -> None:
    """End the plugins of a CLI that crashed. Otherwise it ends them itself.

    marker   a setting (NAME=value) that only the CLI's environment has. Without /proc this does nothing
    """
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another account's, or it has ended
            # Programs that a step started have the variable too, and may be daemons.
            is_plugin = _program(folder).startswith(f"{CLI}-")
            if is_plugin and marker.encode() in (folder / "environ").read_bytes().split(b"\0"):
                _signal(int(folder.name), signal.SIGKILL)


def is_cli(pid: int) -> bool:
    """Return whether a process of this machine is a Pulumi CLI; without /proc, every process counts as one."""
    if not _is_running(pid):
        return False
    try:
        return _program(Path(f"/proc/{pid}")) == CLI
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    except OSError:
        return True


def _is_running(pid: int) -> bool:
    """Return whether a process of this machine, of any user, is running, and no zombie, which only Linux reports."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    with suppress(OSError):
        return pid > 0 and _stat(Path(f"/proc/{pid}"))[0] != "Z"
    return pid > 0


def _stat(folder: Path) -> list[str]:
    """Return the fields after a process's name in /proc: state, parent, and so on. OSError if it has ended."""
    return (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _program(folder: Path) -> str:
    """Return the name of a process's program. OSError if it has ended."""
    return PurePath(os.fsdecode((folder / "cmdline").read_bytes()).split("\0")[0]).name


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(parent: int, program: str) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started_by = _stat(folder)[1]
            name = _program(folder)
        except OSError:  # it has ended
            continue
        if int(started_by) == parent and name == program:
            yield int(folder.name)
