"""The node's comment in Slurm: findings that drain no node, for `tailrack nodes` and `make status`. Pure.

A node updates its comment only when the text changes. A comment that somebody else set stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from components.validation.preflight.findings import Finding
from components.validation.preflight.node import PROFILING
from components.validation.preflight.versions import VERSIONS

PREFIX = "tailrack: "
_NOTED = frozenset({PROFILING, VERSIONS})


def new_comment(items: Iterable[Finding], comment: str) -> str | None:
    """Return the comment that the node should have; None if the present one stays."""
    if comment and not comment.startswith(PREFIX):
        return None
    notes = [f"{item['check']}: {item['seen']}; next: {item['remedy']}" for item in items if item["check"] in _NOTED]
    wanted = PREFIX + "; ".join(notes) if notes else ""
    return None if wanted == comment else wanted


def note_in(comment: str) -> str:
    """Return the note in a comment; empty without one."""
    return comment.removeprefix(PREFIX) if comment.startswith(PREFIX) else ""
