"""The error that ends a step, and parts of leaving, where an error in one does not end the others."""

from __future__ import annotations

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
