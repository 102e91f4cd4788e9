"""Remove the watch of a node, or the finder of the head node. Notes in Slurm stay until their jobs end."""

from __future__ import annotations

from components.node import files
from components.roles.job_hangs.paths import ANSWER, ASK_RAS, FINDER, LIMITS, MINUTES, REPORTED, STALLS


def remove_watch() -> None:
    """Remove the watch."""
    for path in (MINUTES, ANSWER, ASK_RAS):
        files.remove(path)
    files.remove_folder(STALLS)


def remove_finder() -> None:
    """Remove the finder."""
    for path in (FINDER, LIMITS, REPORTED):
        files.remove(path)
