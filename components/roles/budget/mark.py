"""The mark in Slurm's AdminComment of a job that the budget holds. Only Slurm's administrators can set it. Pure."""

from __future__ import annotations

# Also in job_submit.lua.
MARK = "tailrack budget"
_BETWEEN = "; "
# Slurm takes a hold by job_submit.lua for the user's own.
HOLDS = frozenset({"JobHeldAdmin", "JobHeldUser"})
RAISE = "the month ends or an administrator raises tailrack:budget.per_month"


def has_mark(comment: str) -> bool:
    """Return whether a job has the mark."""
    return MARK in comment.split(_BETWEEN)


def with_mark(comment: str) -> str:
    """Return a comment with the mark before its own text."""
    return f"{MARK}{_BETWEEN}{comment}" if comment else MARK


def without_mark(comment: str) -> str:
    """Return a comment without the mark."""
    return _BETWEEN.join(part for part in comment.split(_BETWEEN) if part != MARK)
