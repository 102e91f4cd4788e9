"""The content of a preview: equal steps grouped, the most important changes, and possible changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from cli.output.progress import MARKS
from cli.output.terminal import one_line
from cli.preview.change import Change, changes, folded, in_order, split
from cli.preview.effects import effects
from cli.run_events import OPERATIONS, Event, Made, Summary
from components.measurement_jobs.scopes import measured_nodes, why_measured
from components.steps.command_line import is_step, read_request
from components.steps.label import StepLabel

_MACHINES = {"tailrack:cluster:ComputeNode": "", "tailrack:cluster:HeadNode": "head node"}
_MOST_KINDS = 3  # sets of differing lines to show for otherwise equal steps


@dataclass(frozen=True)
class Machines:
    """Machines that are added, removed or replaced (`operation`); `kind` is empty for compute nodes."""

    operation: str
    kind: str
    names: list[str]


@dataclass(frozen=True)
class Measured:
    """The measurement of a scope: its nodes, the reasons to measure again, and the differences of its step's files."""

    scope: str
    operation: str
    nodes: list[str]
    why: list[str]
    files: list[str]


@dataclass(frozen=True)
class Work:
    """Equal steps: their action, their machines, and the differing lines."""

    operation: str
    action: str
    subjects: list[str]
    lines: list[str]


@dataclass(frozen=True)
class Plan:
    """The content of a preview.

    counts     certain changes of resources by operation
    perhaps    steps that run only if a machine's answer changes
    """

    counts: Mapping[str, int]
    machines: list[Machines]
    effects: Mapping[str, list[str]]
    measured: list[Measured]
    work: list[Work]
    perhaps: list[Work]

    @classmethod
    def of(cls, events: Iterable[Event], resources: Sequence[Made], summary: Summary) -> Plan:
        """Return the plan in the events of a preview.

        resources   of the last run
        """
        all_changes = changes(events)
        certain = [change for change in all_changes if change.certain]
        counts = Counter(change.operation for change in certain)
        counts["same"] = summary.counts["same"] + len(all_changes) - len(certain)
        steps = [change for change in certain if not change.is_component]
        measured = {change.name: change for change in steps if change.measures and change.operation != "update"}
        rest = [_described(change) for change in steps if change.name not in measured]
        return cls(
            counts,
            _machines(certain),
            effects(certain, resources),
            [_measured(measured[name]) for name in sorted(measured)],
            list(_alike([(change, change.lines()) for change in rest])),
            list(_alike([(change, []) for change in _perhaps(all_changes, resources)])),
        )

    @property
    def totals(self) -> str:
        """Return the counts as a sentence."""
        parts = [f"{self.counts[name]} to {name}" for name in OPERATIONS if name != "same" and self.counts.get(name)]
        possible = sum(len(work.subjects) for work in self.perhaps)
        return (
            f"{', '.join(parts) or 'Nothing to change'}, {self.counts['same']} unchanged"
            + (f", of which {possible} may run again" if possible else "")
            + "."
        )


def _machines(changes_: Iterable[Change]) -> list[Machines]:
    kinds = {
        change.name: (change.operation, _MACHINES[change.type])
        for change in changes_
        if change.type in _MACHINES and change.operation in ("create", "delete")
    }
    for change in changes_:
        # When the stack replaces a machine, it replaces the machine's steps too.
        if change.operation == "replace" and change.name in (f"{change.subject}-head", f"{change.subject}-node"):
            kinds[change.subject] = ("replace", "")
    names: dict[tuple[str, str], list[str]] = {}
    for name in in_order(kinds):
        names.setdefault(kinds[name], []).append(name)
    return [Machines(*kind, of_kind) for kind, of_kind in names.items()]


def _measured(change: Change) -> Measured:
    before, after = (inputs.get("triggers") for inputs in (change.before, change.after))
    return Measured(
        _scope(change),
        change.operation,
        in_order(measured_nodes(after or before)),
        why_measured(before, after),
        change.lines(),
    )


def _described(change: Change) -> Change:
    """Return a step; a measurement that does not run again only reports its last result."""
    return replace(change, action=f"report the last measurement again: {_scope(change)}") if change.measures else change


def _scope(change: Change) -> str:
    return change.action.removeprefix("measure ")


def _alike(changes_: Sequence[tuple[Change, list[str]]]) -> Iterator[Work]:
    kinds: dict[tuple[str, str], dict[tuple[str, ...], list[str]]] = {}
    for change, lines in changes_:
        by_lines = kinds.setdefault((change.operation, change.action), {})
        by_lines.setdefault(tuple(lines), []).append(change.subject)
    for (operation, action), by_lines in sorted(kinds.items()):
        if len(by_lines) <= _MOST_KINDS:
            for differing, subjects in by_lines.items():
                yield Work(operation, action, in_order(subjects), list(differing))
        else:
            yield Work(operation, action, in_order(chain(*by_lines.values())), list(_some(by_lines)))


def _some(by_lines: Mapping[tuple[str, ...], Sequence[str]]) -> Iterator[str]:
    """Give the most common differences, and the machines with others."""
    most_common = sorted(by_lines.items(), key=lambda item: -len(item[1]))
    for lines, subjects in most_common[:_MOST_KINDS]:
        yield f"# on {', '.join(folded(subjects))}"
        yield from lines
    rest = folded(chain(*(subjects for _, subjects in most_common[_MOST_KINDS:])))
    yield f"# on {', '.join(rest)}: other lines"


def _perhaps(changes_: Sequence[Change], resources: Sequence[Made]) -> list[Change]:
    """Return possible changes: uncertain ones, and steps that use the output of a step that runs again."""
    uncertain = [change for change in changes_ if not change.certain and not change.is_component]
    listed = {change.urn for change in changes_}
    running_again = {change.urn for change in changes_ if change.operation in ("update", "replace")}
    reads = {resource.urn: _read_by(resource) for resource in resources}
    growing = True
    while growing:
        size = len(running_again)
        names = {urn.rpartition("::")[2] for urn in running_again}
        running_again |= {
            resource.urn
            for resource in resources
            if not running_again.isdisjoint(resource.values_of) or not names.isdisjoint(reads[resource.urn])
        }
        growing = len(running_again) > size
    possible = [
        resource for resource in resources if resource.urn in running_again - listed and is_step(resource.command)
    ]
    return [*uncertain, *(_unchanged(resource) for resource in possible)]


def _read_by(resource: Made) -> set[str]:
    """Return the steps whose answers a measurement reads: the state does not name them (steps.values.independent)."""
    label = StepLabel.of(resource.command)
    if label is None or not label.name.startswith("validate-"):
        return set()
    rows = (read_request(resource.stdin) or {}).get("members", "").splitlines()
    machines = {label.machine, *(row.split(" ")[0] for row in rows)}
    return {f"{machine}-{step}" for machine in machines for step in ("prepare", "head", "register")}


def _unchanged(resource: Made) -> Change:
    subject, action = split(StepLabel.of(resource.command), resource.name)
    return Change("update", resource.urn, "", resource.name, subject, action, {}, {})


def render(plan: Plan) -> Iterator[str]:
    """Give the lines, without the totals."""
    return map(one_line, _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    for machines in plan.machines:
        names = ", ".join(folded(machines.names))
        yield f" {MARKS[machines.operation]} {f'{machines.kind} ' if machines.kind else ''}{names}"
    for name, lines in plan.effects.items():
        yield f"   {name}"
        yield from (f"      {line}" for line in lines)
    for measured in plan.measured:
        why = f" (changed: {', '.join(measured.why)})" if measured.why else ""
        yield _line(Work(measured.operation, f"measure {measured.scope}", measured.nodes, []), measured.operation) + why
    for work in plan.work:
        yield _line(work, work.operation)
        yield from (f"      {line}" for line in work.lines)
    for work in plan.perhaps:
        yield _line(work, "may run again, if a machine's answer changes", "?")


def _line(work: Work, outcome: str, mark: str = "") -> str:
    subjects = ", ".join(subject for subject in folded(work.subjects) if subject)
    return f" {mark or MARKS[work.operation]} {work.action + (f': {subjects}' if subjects else ''):<52} {outcome}"
