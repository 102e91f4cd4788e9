"""What a preview comes to: steps that are alike told once, what people look for first, and what only may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from cli.preview import effects
from cli.preview.change import Change, changes, split
from cli.preview.names import folded, in_order
from components.measurement.triggers import measured_nodes, why_measured
from components.steps.command_line import is_step
from components.steps.label import StepLabel
from engine.events import OPERATIONS, Event, Made, Summary

_MACHINES = {"tailrack:cluster:ComputeNode": "", "tailrack:cluster:HeadNode": "head node"}
_MOST_KINDS = 3  # of differences that are told of steps that are otherwise alike


@dataclass(frozen=True)
class Machine:
    """A machine that comes, goes or is made anew (`operation`). `what` it is, where it is no compute node."""

    name: str
    operation: str
    what: str


@dataclass(frozen=True)
class Measured:
    """A scope that is measured: over which nodes, why once more, and what differs in the files of its step."""

    scope: str
    operation: str
    nodes: list[str]
    why: list[str]
    files: list[str]


@dataclass(frozen=True)
class Work:
    """Steps that are alike: what they do, of which machines, and the lines that differ."""

    operation: str
    words: str
    subjects: list[str]
    lines: list[str]


@dataclass(frozen=True)
class Plan:
    """All of a preview.

    counts     resources by operation, those that are certain
    perhaps    what may run besides: where a machine answers otherwise than it did when it was last asked
    """

    counts: Mapping[str, int]
    machines: list[Machine]
    effects: list[effects.Effect]
    measured: list[Measured]
    work: list[Work]
    perhaps: list[Work]

    @classmethod
    def of(cls, events: Iterable[Event], made: Sequence[Made], summary: Summary) -> Plan:
        """Return what the events of a preview come to.

        made   what the run before left
        """
        found = changes(events)
        certain = [change for change in found if change.certain]
        counts = Counter(change.operation for change in certain)
        counts["same"] = summary.counts["same"] + len(found) - len(certain)
        steps = [change for change in certain if not change.is_component]
        measured = {change.name: change for change in steps if change.measures and change.operation != "update"}
        rest = [_in_its_words(change) for change in steps if change.name not in measured]
        return cls(
            counts,
            _machines(certain),
            effects.effects(certain, made),
            [_measured(measured[name]) for name in sorted(measured)],
            list(_alike([(change, change.lines()) for change in rest])),
            list(_alike([(change, []) for change in _perhaps(found, made)])),
        )

    @property
    def totals(self) -> str:
        """The counts in words."""
        parts = [f"{self.counts[name]} to {name}" for name in OPERATIONS if name != "same" and self.counts.get(name)]
        may = sum(len(work.subjects) for work in self.perhaps)
        return (
            f"{', '.join(parts) or 'Nothing to change'}, {self.counts['same']} unchanged"
            + (f", of which {may} may run again" if may else "")
            + "."
        )


def _machines(found: Iterable[Change]) -> list[Machine]:
    named = {
        change.name: Machine(change.name, change.operation, _MACHINES[change.type])
        for change in found
        if change.type in _MACHINES and change.operation in ("create", "delete")
    }
    for change in found:
        # Steps of a machine that the stack makes go with it.
        if change.operation == "replace" and change.name == f"{change.subject}-check":
            named[change.subject] = Machine(change.subject, "replace", "")
    return [named[name] for name in in_order(named)]


def _measured(change: Change) -> Measured:
    before, after = (inputs.get("triggers") for inputs in (change.before, change.after))
    return Measured(
        _scope(change),
        change.operation,
        in_order(measured_nodes(after or before)),
        why_measured(before, after),
        change.lines(),
    )


def _in_its_words(change: Change) -> Change:
    """A step; that of a measurement which is not taken anew only says what was measured."""
    return replace(change, words=f"say once more what was measured: {_scope(change)}") if change.measures else change


def _scope(change: Change) -> str:
    return change.words.removeprefix("measure ")


def _alike(found: Sequence[tuple[Change, list[str]]]) -> Iterator[Work]:
    """Steps by what they do and what differs in them."""
    kinds: dict[tuple[str, str], dict[tuple[str, ...], list[str]]] = {}
    for change, lines in found:
        of_one = kinds.setdefault((change.operation, change.words), {})
        of_one.setdefault(tuple(lines), []).append(change.subject)
    for (operation, words), by_lines in sorted(kinds.items()):
        if len(by_lines) <= _MOST_KINDS:
            for told, subjects in by_lines.items():
                yield Work(operation, words, in_order(subjects), list(told))
        else:
            yield Work(operation, words, in_order(chain(*by_lines.values())), list(_some(by_lines)))


def _some(by_lines: Mapping[tuple[str, ...], Sequence[str]]) -> Iterator[str]:
    """The most common differences, and who has others."""
    most_common = sorted(by_lines.items(), key=lambda each: -len(each[1]))
    for lines, subjects in most_common[:_MOST_KINDS]:
        yield f"# of {', '.join(folded(subjects))}"
        yield from lines
    rest = folded(chain(*(subjects for _, subjects in most_common[_MOST_KINDS:])))
    yield f"# of {', '.join(rest)}: each has lines of its own"


def _perhaps(found: Sequence[Change], made: Sequence[Made]) -> list[Change]:
    """What may run besides: what is told as not known, and all that is made of what a step answers that runs again."""
    unsure = [change for change in found if not change.certain and not change.is_component]
    told = {change.urn for change in found}
    again = {change.urn for change in found if change.operation in ("update", "replace")}
    grown = True
    while grown:
        before = len(again)
        again |= {each.urn for each in made if not again.isdisjoint(each.values_of)}
        grown = len(again) > before
    may = [each for each in made if each.urn in again - told and is_step(each.command)]
    return [*unsure, *(_unchanged(each) for each in may)]


def _unchanged(made: Made) -> Change:
    name = made.urn.rpartition("::")[2]
    subject, words = split(StepLabel.of(made.command), name)
    return Change("update", made.urn, "", name, subject, words, {}, {})
