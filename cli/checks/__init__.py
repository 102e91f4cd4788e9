"""Changes that must be allowed by name: each rule is a function from a preview's event to findings.

To add a rule: a file here, its name in stacks/config/allow.py, its function in RULES, and its row in
docs/pull-requests.md. A finding whose name is not in allow.py cannot be allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from cli.checks.export_wide import export_wide
from cli.checks.floors import floors
from cli.checks.head_replaced import head_replaced
from cli.checks.key_endless import key_endless
from cli.checks.slurm_release import SlurmRelease
from cli.checks.ssh_open import ssh_open
from cli.run_events import Event
from stacks.config.allow import FINDINGS

Rule = Callable[[Event], Iterable[tuple[str, str]]]
RULES: tuple[Rule, ...] = (ssh_open, key_endless, export_wide, floors, head_replaced)


class Finding(NamedTuple):
    """A result of a rule: its name, which the config can allow if it is in stacks.config.allow.FINDINGS, and a text."""

    name: str
    text: str


def refusal(finding: Finding) -> str:
    """Return a line for a finding that is not allowed."""
    remedy = f" To allow it, add {finding.name} to tailrack:allow." if finding.name in FINDINGS else ""
    return f"{finding.name}: {finding.text}.{remedy}"


class Checks:
    """The findings of one preview, allowed by the config or refused."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)
        self._rules: tuple[Rule, ...] = (*RULES, SlurmRelease())
        self._findings: dict[Finding, None] = {}  # each once, in the order of discovery

    def on_event(self, event: Event) -> None:
        """Apply the rules to one event of a preview."""
        if event.kind == "start":
            for rule in self._rules:
                self._findings.update((Finding(*result), None) for result in rule(event))

    @property
    def refused(self) -> list[Finding]:
        return sorted(finding for finding in self._findings if finding.name not in self._allowed & {*FINDINGS})

    @property
    def accepted(self) -> list[Finding]:
        return sorted(finding for finding in self._findings if finding.name in self._allowed & {*FINDINGS})

    @property
    def unused(self) -> list[str]:
        """Return names that the config allows and no finding needs: they would allow a later change unseen."""
        return sorted(self._allowed - {name for name, _ in self._findings})

    def lines(self) -> Iterator[str]:
        """Give a line for each finding and unused name, refused findings first."""
        yield from map(refusal, self.refused)
        for name, text in self.accepted:
            yield f"{name}: {text}. Allowed by tailrack:allow."
        for name in self.unused:
            yield f"tailrack:allow has {name}, but no change needs it. Remove it, or it allows the next change unseen."
