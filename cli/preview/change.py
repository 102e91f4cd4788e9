"""What a preview would do with one resource, all that an engine tells of it in one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from cli.output.terminal import one_line
from cli.preview.changed_lines import changed_lines
from components.steps.former_names import current_name
from components.steps.label import StepLabel
from engine.events import Event
from engine.values import HIDDEN


@dataclass(frozen=True)
class Change:
    """One resource that would be created, updated, replaced or deleted.

    subject   the machine it is about, empty where it is about none; the name of what is no command
    words     what it does, in a few words for people
    before, after   its inputs, every secret hidden; none before a create, none after a delete
    """

    operation: str
    urn: str
    type: str
    name: str
    subject: str
    words: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def is_component(self) -> bool:
        """Whether it has no work of its own."""
        return self.type.startswith(("tailrack:", "pulumi:"))

    @property
    def measures(self) -> bool:
        """Whether it is a measurement: those alone have a command for what is no reason to measure again."""
        return "update" in (self.after or self.before)

    @property
    def certain(self) -> bool:
        """Whether it happens whatever machines answer; not where all that differs is not known yet."""
        if self.operation not in ("update", "replace") or not self.before or not self.after:
            return True
        found = {_differ(self.before.get(key), self.after.get(key)) for key in self.before.keys() | self.after.keys()}
        return True in found or None not in found

    def lines(self) -> list[str]:
        """What differs, as lines of a diff."""
        return [one_line(line) for line in changed_lines(self.before, self.after)]


def changes(events: Iterable[Event]) -> list[Change]:
    """Return what the events of a preview are about, each resource once.

    The delete that is a part of a replacement is none.
    """
    found: dict[str, Change] = {}
    for event in events:
        if event.kind != "start" or event.operation == "same":
            continue
        change = _change(event)
        if other := found.get(event.urn):
            pair = {one.operation: one for one in (other, change)}
            made = pair.get("replace") or pair.get("create") or change
            change = replace(made, operation="replace", before=made.before or other.before or change.before)
        found[event.urn] = change
    return list(found.values())


def split(label: StepLabel | None, name: str) -> tuple[str, str]:
    """Return the machine that a command is about, empty where that is none, and its words."""
    if label is None:
        return "", name
    subject, is_one, words = label.text.partition(": ")
    return (subject, words) if is_one and label.name.startswith(f"{subject}-") else ("", label.text)


def _change(event: Event) -> Change:
    if event.type.startswith("command:"):
        name = current_name(event.name)
        subject, words = split(StepLabel.of(event.command), name)
    else:  # what a cloud has
        name = subject = event.name
        words = event.type.rpartition(":")[2]
    return Change(event.operation, event.urn, event.type, name, subject, words, event.before, event.after)


def _differ(old: object, new: object) -> bool | None:
    """Whether two values differ; None where that is not known yet."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() == new.keys():
        found = {_differ(old[key], new[key]) for key in old}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        found = {_differ(*pair) for pair in zip(old, new, strict=True)}
    elif UNKNOWN in (old, new):
        # No secret comes from what a machine answers: it is one that is made anew.
        return True if HIDDEN in (old, new) else None
    else:
        return old != new
    return True if True in found else None if None in found else False
