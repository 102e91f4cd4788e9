"""The process that made a call: who it is, and whether it still waits for the answer."""

import signal
from pathlib import Path

Identity = tuple[int, int, tuple[int, ...]]
"""A uid, a gid and supplementary groups."""


def groups_of(thread: int, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Return a thread's supplementary groups, which a kernel's NFS sends with each call; none of one that is gone."""
    try:
        status = (proc / str(thread) / "status").read_text(encoding="utf-8")
    except OSError:
        return ()
    return tuple(map(int, next(line for line in status.splitlines() if line.startswith("Groups:")).split()[1:]))


def was_killed(thread: int, proc: Path = Path("/proc")) -> bool:
    """Whether a thread has SIGKILL on its way, ends by a signal, or is gone; thread 0 is the kernel itself.

    FUSE lets a process end only when its calls have been answered; a kernel's NFS lets it go at once.
    """
    if thread == 0:
        return False
    try:
        status = (proc / str(thread) / "status").read_text(encoding="utf-8")
        # proc(5): the last of the fields is the exit code, there as soon as it ends, in the form of waitpid(2).
        exit_code = int((proc / str(thread) / "stat").read_text(encoding="utf-8").split()[-1])
    except OSError:
        return True
    pending = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigPnd:"))
    return bool(pending >> (signal.SIGKILL - 1) & 1 or exit_code & 0x7F)
