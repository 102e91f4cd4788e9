"""One overall verdict for a stack. The exit status of `make up`, the terminal and the page all read it here."""

from collections.abc import Mapping
from typing import Any

from cli.report.facts import Judgement, scopes, separate_nodes
from cli.report.storage import of_jobs

BAD_VERDICTS = ("FAIL", "UNSTABLE", "INCONCLUSIVE")
# A measurement may find its nodes busy with other jobs this often in a row; from then on, no one has measured them.
MOST_BUSY = 2
_WORST_FIRST = (*BAD_VERDICTS, "BUSY", "UNJUDGED", "PASS")


def judged(outputs: Mapping[str, Any]) -> list[Judgement]:
    """Return everything with a verdict in a stack's outputs, in the order of the tables."""
    return [*separate_nodes(outputs), *scopes(outputs), *of_jobs(outputs)]


def bad(outputs: Mapping[str, Any]) -> list[str]:
    """Return the titles whose verdict makes `make up` exit with 1."""
    return [
        item.title
        for item in judged(outputs)
        if item.verdict in BAD_VERDICTS or (item.verdict == "BUSY" and item.retries >= MOST_BUSY)
    ]


def overall(outputs: Mapping[str, Any], failed_steps: bool = False) -> str | None:
    """Return the worst verdict of a stack, or None if nothing was judged.

    failed_steps   whether the last `make up` ended with a failed step: then nothing looks better than FAIL
    """
    if failed_steps:
        return "FAIL"
    verdicts = [item.verdict for item in judged(outputs)]
    return min(verdicts, key=_rank) if verdicts else None


def _rank(verdict: str) -> int:
    # An unknown verdict of another release is not better than a known one.
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else 0
