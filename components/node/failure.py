"""The error that ends a step, and parts of leaving, where an error in one does not end the others."""

import os
import sys
from collections.abc import Callable

from components.node.log import note


class Failure(Exception):
    """A reason for people, and what they can do about it.

    reason   one line without secrets
    remedy   the next command or change; empty if reading the step's log is the only remedy
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def do_each(*parts: Callable[[], object]) -> None:
    """Call functions, and log their errors."""
    for part in parts:
        try:
            part()
        except (Failure, OSError) as error:
            note(str(error))


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
