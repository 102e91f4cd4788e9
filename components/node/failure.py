"""The error that ends a step."""

from __future__ import annotations


class Failure(Exception):
    """A reason for people, and what they can do about it.

    reason   one line without secrets
    remedy   the next command or change; empty if reading the step's log is the only remedy
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
