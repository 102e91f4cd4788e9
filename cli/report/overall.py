"""One overall verdict for a stack. The exit status of `make up`, the terminal and the page all read it here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.report.facts import scopes, separate_nodes
from cli.report.storage import storage_of, training_of

BAD_VERDICTS = ("FAIL", "UNSTABLE", "INCONCLUSIVE")
# A measurement may find its nodes busy with other jobs this often in a row; from then on, no one has measured them.
MOST_BUSY = 2
_WORST_FIRST = (*BAD_VERDICTS, "BUSY", "UNJUDGED", "PASS")


@dataclass(frozen=True)
class Judged:
    """One judged thing: a node measured alone, a site, `cross-site`, the training benchmark, or storage."""

    title: str
    verdict: str
    retries: int = 0  # how often in a row it was BUSY before

    @property
    def is_bad(self) -> bool:
        """Return whether it makes `make up` exit with 1."""
        return self.verdict in BAD_VERDICTS or (self.verdict == "BUSY" and self.retries >= MOST_BUSY)


def judged(outputs: Mapping[str, Any]) -> list[Judged]:
    """Return everything with a verdict in a stack's outputs, in the order of the tables."""
    measured = [*separate_nodes(outputs), *scopes(outputs)]
    items = [Judged(scope.title, scope.result["verdict"], int(scope.result.get("retries") or 0)) for scope in measured]
    if trained := training_of(outputs):
        items.append(Judged("training", trained.verdict))
    if storage := storage_of(outputs):
        items.append(Judged("storage", storage.verdict, storage.retries))
    return items


def bad(outputs: Mapping[str, Any]) -> list[str]:
    """Return the titles whose verdict makes `make up` exit with 1."""
    return [item.title for item in judged(outputs) if item.is_bad]


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
