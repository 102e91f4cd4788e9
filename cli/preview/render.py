"""A preview on the terminal: what people look for first, and a line for steps that are alike."""

from __future__ import annotations

from collections.abc import Iterator

from cli.output.progress import MARKS
from cli.output.terminal import one_line
from cli.preview.names import folded
from cli.preview.plan import Plan, Work


def told(plan: Plan) -> Iterator[str]:
    """Give the lines, without the totals."""
    return map(one_line, _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    for machine in plan.machines:
        yield f" {MARKS[machine.operation]} {f'{machine.what} ' if machine.what else ''}{machine.name}"
    for effect in plan.effects:
        yield f"   {effect.name}"
        yield from (f"      {line}" for line in effect.lines)
    for one in plan.measured:
        why = f" (another: {', '.join(one.why)})" if one.why else ""
        yield _line(Work(one.operation, f"measure {one.scope}", one.nodes, []), one.operation) + why
    for work in plan.work:
        yield _line(work, work.operation)
        yield from (f"      {line}" for line in work.lines)
    for work in plan.perhaps:
        yield _line(work, "may run again, where a machine answers otherwise than before", "?")


def _line(work: Work, outcome: str, mark: str = "") -> str:
    subjects = ", ".join(subject for subject in folded(work.subjects) if subject)
    return f" {mark or MARKS[work.operation]} {work.words + (f': {subjects}' if subjects else ''):<52} {outcome}"
