"""Clean this node's scratch disk, once an hour (task `scratch`)."""

from __future__ import annotations

from collections.abc import Sequence

from components.roles.scratch.caches import clean_caches
from components.roles.scratch.sweep import sweep


def main(_arguments: Sequence[str]) -> int:
    """Clean it."""
    sweep()
    clean_caches()
    return 0
