"""What nobody should merge without having asked for it: each rule is a function from a preview's event to findings.

To add one: a file here, its name in stacks/config/allow.py, its function in RULES, and its row in
docs/pull-requests.md. One whose name is not in allow.py finds what cannot be, whoever asks for it.
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
from engine.events import Event
from stacks.config.allow import FINDINGS

Rule = Callable[[Event], Iterable[tuple[str, str]]]
RULES: tuple[Rule, ...] = (ssh_open, key_endless, export_wide, floors, head_replaced)


class Finding(NamedTuple):
    """What a rule gives: its name, by which it is allowed if it is of stacks.config.allow.FINDINGS; what would be."""

    name: str
    text: str


class Checks:
    """Findings of one preview, those that the config allows by name apart from those that it does not."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)
        self._rules: tuple[Rule, ...] = (*RULES, SlurmRelease())
        self._found: dict[Finding, None] = {}  # each once, in the order of the rules' finding them

    def on_event(self, event: Event) -> None:
        """Look at one event of a preview."""
        if event.kind == "start":
            for rule in self._rules:
                self._found.update((Finding(*found), None) for found in rule(event))

    @property
    def refused(self) -> list[Finding]:
        """Findings that nobody asked for."""
        return sorted(one for one in self._found if one.name not in self._allowed & {*FINDINGS})

    @property
    def asked_for(self) -> list[Finding]:
        """Findings that the config allows by name."""
        return sorted(one for one in self._found if one.name in self._allowed & {*FINDINGS})

    @property
    def unused(self) -> list[str]:
        """Names that the config allows and nothing needs: what they let pass later, nobody would have looked at."""
        return sorted(self._allowed - {name for name, _ in self._found})

    def lines(self) -> Iterator[str]:
        """All of it in words, what is refused first."""
        for name, text in self.refused:
            asking = f" Not as asked for: to have it so, add {name} to tailrack:allow." if name in FINDINGS else ""
            yield f"{name}: {text}.{asking}"
        for name, text in self.asked_for:
            yield f"{name}: {text}. Asked for by tailrack:allow."
        for name in self.unused:
            yield f"tailrack:allow has {name}, which nothing needs: take it out, or it lets the next one pass unseen."
