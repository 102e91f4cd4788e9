"""The command `slurm-room`: reserve disk space for slurmctld's state, and prevent a start from an outdated state.

    tailrack-slurm-room keep     as slurm, by tailrack-slurm-room.service: keeps a reserve file; frees it on a full disk
    tailrack-slurm-room stopped  as slurm, after slurmctld has ended: notes whether its last changes could be saved
    tailrack-slurm-room check    as slurm, before slurmctld starts: rejects a state that could not be saved completely
    tailrack-slurm-room accept   as root: starts from that state anyway

On a full disk slurmctld continues with its last complete state on disk. A start from that state runs jobs again that
have ended since. Everything here runs as slurm, in slurm's folders.
"""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep

from components.node import files, kernel
from components.node.run import attempt

_MIB = 2**20
_PAUSE_SECONDS = 2
_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    os.umask(0o022)
    command = arguments[0] if arguments else ""
    room = Room(Path(files.on_disk("/var/lib/slurm/slurmctld")))
    if command == "keep":
        room.keep()
    elif command == "stopped":
        room.record_state()
    elif command == "check":
        return room.check()
    elif command == "accept":
        return room.accept()
    else:
        sys.stderr.write("usage: tailrack-slurm-room accept\n")
        return _USAGE
    return 0


class Room:
    """The disk of slurmctld's state. One of two files exists; renaming one to the other needs no space."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._room = state / "tailrack-room"
        self._saved, self._unsaved = state / "tailrack-saved", state / "tailrack-unsaved"
        self._controller = ""

    def keep(self) -> None:
        """Keep the reserve, and record whether slurmctld can save its state, until the process is stopped."""
        with suppress(OSError):
            if not self._unsaved.exists():
                self._saved.touch()
        while True:
            with suppress(OSError):
                self._keep_room()
            # Without slurmctld there are no unsaved changes.
            if self._controller_runs():
                self.record_state()
            sleep(_PAUSE_SECONDS)

    def record_state(self) -> None:
        """Record whether slurmctld can save its state now."""
        with suppress(OSError):
            if free(self._state) < _MIB + self._state_size():
                self._note_unsaved()
            else:
                self._note_saved()

    def check(self) -> int:
        """Return 1 if slurmctld must not start."""
        if not self._unsaved.exists():
            return 0
        sys.stdout.write(
            f"<3>slurmctld does not start: its disk was full, and its state lacks changes since {self._last_change()}. "
            f"Jobs that ended since then would run again; next: make room (df -h {self._state}); then, to start from "
            "that state anyway: sudo tailrack-slurm-room accept\n"
        )
        return 1

    def accept(self) -> int:
        """Start from that state anyway, and return the exit status."""
        from components.node.accounts import as_user

        moved = as_user("slurm", "mv", "-T", str(self._unsaved), str(self._saved), limit=60)
        if not moved.ok:
            return moved.status
        reset = attempt("systemctl", "reset-failed", "slurmctld")
        return attempt("systemctl", "start", "slurmctld").status if reset.ok else reset.status

    def _keep_room(self) -> None:
        size = self._state_size()
        # Space for one state and some seconds of other writes.
        needed = 4 * _MIB + 2 * size
        if self._room.exists():
            if free(self._state) < needed:
                self._room.unlink()
                sys.stdout.write(
                    f"<3>the disk of {self._state} is full: Slurm's state now uses its reserved space; next: make room "
                    f"(df -h {self._state})\n"
                )
                sys.stdout.flush()
            return
        # A function of glibc would fill the file where the file system cannot reserve space.
        words = ("fallocate", "-l", str(64 * _MIB + 4 * size), str(self._room))
        if free(self._state) > 128 * _MIB + 6 * size and not attempt(*words).ok:
            self._room.unlink(missing_ok=True)

    def _state_size(self) -> int:
        """Return the size of the state's largest file."""
        try:
            return (self._state / "job_state").stat().st_size
        except OSError:
            return 0

    def _last_change(self) -> str:
        try:
            changed = (self._state / "job_state").stat().st_mtime
        except OSError:
            return ""
        return time.strftime("%F %T", time.localtime(changed))

    def _note_unsaved(self) -> None:
        if not self._unsaved.exists():
            with suppress(OSError):
                self._saved.rename(self._unsaved)
        self._unsaved.touch()

    def _note_saved(self) -> None:
        """Note it if the state is newer than the full disk: then it is complete."""
        with suppress(FileNotFoundError):
            if (self._state / "job_state").stat().st_mtime_ns > self._unsaved.stat().st_mtime_ns:
                self._unsaved.rename(self._saved)

    def _controller_runs(self) -> bool:
        """Return whether this account runs slurmctld."""
        if not _is_controller(self._controller):
            processes = filter(str.isdigit, kernel.names_in("/proc"))
            self._controller = next(filter(_is_controller, processes), "")
        return bool(self._controller)


def free(folder: Path) -> int:
    """Return the bytes of free space for this account."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def _is_controller(process: str) -> bool:
    if not process or kernel.read(f"/proc/{process}/comm") != "slurmctld\n":
        return False
    # /proc/<pid> may belong to root after slurmctld has changed its account.
    rows = (line.split() for line in kernel.read(f"/proc/{process}/status").splitlines())
    return any(row[:1] == ["Uid:"] and row[2:3] == [str(os.geteuid())] for row in rows)
