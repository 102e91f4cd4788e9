"""What nobody should merge without having asked for it: each rule is a function from a preview's event to findings.

To add one: a file here, its name in stacks/config/allow.py, its function in RULES, and its row in
docs/pull-requests.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from driver.checks.export_wide import export_wide
from driver.checks.finding import Finding
from driver.checks.floors import floors
from driver.checks.head_replaced import head_replaced
from driver.checks.key_endless import key_endless
from driver.checks.ssh_open import ssh_open
from engine.events import Event

RULES: tuple[Callable[[Event], Iterable[Finding]], ...] = (ssh_open, key_endless, export_wide, floors, head_replaced)


class Checks:
    """Findings of one preview, those that the config allows by name apart from those that it does not."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)
        self._found: dict[Finding, None] = {}  # each once, in the order of the rules' finding them

    def on_event(self, event: Event) -> None:
        """Look at one event of a preview."""
        if event.kind == "start":
            for rule in RULES:
                self._found.update(dict.fromkeys(rule(event)))

    @property
    def refused(self) -> list[Finding]:
        """Findings that nobody asked for."""
        return sorted((one for one in self._found if one.name not in self._allowed), key=_order)

    @property
    def asked_for(self) -> list[Finding]:
        """Findings that the config allows by name."""
        return sorted((one for one in self._found if one.name in self._allowed), key=_order)

    @property
    def unused(self) -> list[str]:
        """Names that the config allows and nothing needs: what they let pass later, nobody would have looked at."""
        return sorted(self._allowed - {one.name for one in self._found})

    def lines(self) -> Iterator[str]:
        """All of it in words, what is refused first."""
        for one in self.refused:
            yield f"{one.name}: {one.text}. Not as asked for: to have it so, add {one.name} to tailrack:allow."
        for one in self.asked_for:
            yield f"{one.name}: {one.text}. Asked for by tailrack:allow."
        for name in self.unused:
            yield f"tailrack:allow has {name}, which nothing needs: take it out, or it lets the next one pass unseen."


def _order(finding: Finding) -> tuple[str, str]:
    return finding.name, finding.text
