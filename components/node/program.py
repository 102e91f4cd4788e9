"""Run a program of a host that a person, a timer or a unit starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from components.node.failure import Failure


def run_program(name: str, work: Callable[[], int | None]) -> int:
    """Call a function, and return the exit status. Errors are written to stderr, after the name if it is not empty."""
    prefix = f"{name}: " if name else ""
    # sshd, a unit or a shell may start it with another umask.
    os.umask(0o022)
    try:
        return work() or 0
    except Failure as failure:
        sys.stderr.write(f"{prefix}{failure.reason}{f'; next: {failure.remedy}' if failure.remedy else ''}\n")
    except OSError as error:
        sys.stderr.write(f"{prefix}{error}\n")
    return 1
