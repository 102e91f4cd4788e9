"""One resource's change in a preview, in one value."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from cli.output.terminal import one_line
from cli.preview.changed_lines import changed_lines
from cli.run_events import Event
from components.settings.mask_secrets import MASK
from components.steps.label import StepLabel


@dataclass(frozen=True)
class Change:
    """A resource to create, update, replace or delete.

    subject   the machine of a command, or empty; the name of any other resource
    action    a short description of the resource for people
    before, after   its inputs with masked secrets; empty before a create and after a delete
    """

    operation: str
    urn: str
    type: str
    name: str
    subject: str
    action: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def is_component(self) -> bool:
        """Return whether it is a component, which does nothing itself."""
        return self.type.startswith(("tailrack:", "pulumi:"))

    @property
    def measures(self) -> bool:
        """Return whether it is a measurement: only measurements have an update command."""
        return "update" in (self.after or self.before)

    @property
    def certain(self) -> bool:
        """Return whether the change happens regardless of machines' answers: some known input differs."""
        if self.operation not in ("update", "replace") or not self.before or not self.after:
            return True
        keys = self.before.keys() | self.after.keys()
        differences = {_differ(self.before.get(key), self.after.get(key)) for key in keys}
        return True in differences or None not in differences

    def lines(self) -> list[str]:
        return [one_line(line) for line in changed_lines(self.before, self.after)]


def changes(events: Iterable[Event]) -> list[Change]:
    """Return the changes in the events of a preview, one per resource.

    The delete of a replacement is not a separate change.
    """
    by_urn: dict[str, Change] = {}
    for event in events:
        if event.kind != "start" or event.operation == "same":
            continue
        change = _change(event)
        if other := by_urn.get(event.urn):
            pair = {part.operation: part for part in (other, change)}
            created = pair.get("replace") or pair.get("create") or change
            change = replace(created, operation="replace", before=created.before or other.before or change.before)
        by_urn[event.urn] = change
    return list(by_urn.values())


def split(label: StepLabel | None, name: str) -> tuple[str, str]:
    """Return the machine of a command, or "", and the command's action."""
    if label is None:
        return "", name
    subject, separator, action = label.text.partition(": ")
    return (subject, action) if separator and label.name.startswith(f"{subject}-") else ("", label.text)


def _change(event: Event) -> Change:
    if event.type.startswith("command:"):
        name = event.name
        subject, action = split(StepLabel.of(event.command), name)
    else:  # a resource of a cloud
        name = subject = event.name
        action = event.type.rpartition(":")[2]
    return Change(event.operation, event.urn, event.type, name, subject, action, event.before, event.after)


def _differ(old: object, new: object) -> bool | None:
    """Return whether two values differ; None if that is unknown."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() == new.keys():
        differences = {_differ(old[key], new[key]) for key in old}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        differences = {_differ(*pair) for pair in zip(old, new, strict=True)}
    elif UNKNOWN in (old, new):
        # A machine's answer contains no secret, so this is a new secret.
        return True if MASK in (old, new) else None
    else:
        return old != new
    return True if True in differences else None if None in differences else False


_MOST = 20  # in one list
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)")


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names sorted, without duplicates: n2 before n10."""

    def by_numbers(name: str) -> list[str]:
        return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    return sorted(set(names), key=by_numbers)


def folded(names: Iterable[str]) -> list[str]:
    """Return the names in order, with Slurm's ranges such as `n[1-400]`; of a long list, the first and a count."""
    items = list(_runs(in_order(names)))
    rest = sum(count for _, count in items[_MOST:])
    return [*(text for text, _ in items[:_MOST]), *([f"{rest} more"] if rest else [])]


def _runs(names: list[str]) -> Iterator[tuple[str, int]]:
    """Give each name or range, with its number of names."""

    def key(item: tuple[int, str]) -> tuple[str, int]:
        index, name = item
        numbered = _NUMBERED.fullmatch(name)
        # In a range, the difference between number and index is constant.
        return (numbered[1], int(numbered[2]) - index) if numbered else (name, -1)

    for _, group in groupby(enumerate(names), key):
        members = [name for _, name in group]
        first, last = _NUMBERED.fullmatch(members[0]), _NUMBERED.fullmatch(members[-1])
        if len(members) > 2 and first and last:
            yield f"{first[1]}[{first[2]}-{last[2]}]", len(members)
        else:
            yield from ((name, 1) for name in members)
