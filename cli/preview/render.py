"""Render a preview for the terminal: the most important changes first, and one line per group of equal steps."""

from __future__ import annotations

from collections.abc import Iterator

from cli.output.progress import MARKS
from cli.output.terminal import one_line
from cli.preview.names import folded
from cli.preview.plan import Plan, Work


def render(plan: Plan) -> Iterator[str]:
    """Give the lines, without the totals."""
    return map(one_line, _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    for machines in plan.machines:
        names = ", ".join(folded(machines.names))
        yield f" {MARKS[machines.operation]} {f'{machines.kind} ' if machines.kind else ''}{names}"
    for effect in plan.effects:
        yield f"   {effect.name}"
        yield from (f"      {line}" for line in effect.lines)
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
