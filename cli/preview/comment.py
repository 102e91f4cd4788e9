"""The comment on a pull request with a preview: the most important changes first, equal steps grouped."""

import re
from collections.abc import Iterable, Iterator, Sequence

from cli.changes_to_allow import Checks
from cli.output.terminal import lines, one_line
from cli.preview.change import folded
from cli.preview.plan import Machines, Measured, Plan, Work
from cli.run_events import Failure

MARK = "<!-- tailrack preview of stack {stack} -->"  # the next run finds the comment by this line and replaces it
LONGEST = 60_000  # characters; GitHub takes 65,536
LONGEST_FAILURE = 10_000
_MACHINE_CHANGE = {"create": "added", "delete": "removed", "replace": "replaced"}
_MEASUREMENT_CHANGE = {"create": "for the first time", "delete": "no longer", "replace": "again"}
_STEP_CHANGE = {"create": "runs", "update": "runs again", "replace": "is undone and runs again", "delete": "is undone"}


def comment(stack: str, plan: Plan, failures: Sequence[Failure], checks: Checks, costs: Sequence[str] = ()) -> str:
    """Return Markdown for a stack's preview: refusals first, then the changes.

    costs   sentences about the change of costs
    """
    parts = [MARK.format(stack=_code(stack)), f"### tailrack: stack `{_code(stack)}`"]
    if refusals := [f"- {_text(line)}" for line in checks.lines()]:
        head = "**Refused:**" if checks.refused else "**Allowed in the config:**"
        parts.append("\n".join([head, "", *refusals]))
    if failures:
        parts.append(
            "**The preview failed.** " + "".join(_fenced(failure.message[:LONGEST_FAILURE]) for failure in failures)
        )
    parts.append(plan.totals)
    if costs:
        parts.append(f"**Costs:** {' '.join(map(_text, costs))}")
    parts += _summary_sections(plan)
    parts += _steps("**Steps:**", plan.work)
    if possible := plan.perhaps:
        heading = "**May run again**, if a machine answers differently than last time:"
        parts.append("\n".join([heading, "", *(f"- {_text(step.action)}{_on(step.subjects)}" for step in possible)]))
    parts += [
        _section(f"files of the measurement {measurement.scope}", measurement.files)
        for measurement in plan.measured
        if measurement.files
    ]
    return _cut(parts)


def _summary_sections(plan: Plan) -> Iterator[str]:
    if plan.machines:
        yield f"**Machines:** {', '.join(_machines(plan.machines))}."
    for name, changed in plan.effects.items():
        yield f"**{name}:**\n{_fenced(chr(10).join(changed), 'diff')}"
    if plan.measured:
        yield "\n".join(["**Measured:**", "", *map(_measured, plan.measured)])


def _machines(machines: Iterable[Machines]) -> Iterator[str]:
    for each in machines:
        yield f"{_names(each.names)}{f' ({each.kind})' if each.kind else ''} {_MACHINE_CHANGE[each.operation]}"


def _measured(measured: Measured) -> str:
    over = f", over {_names(measured.nodes)}" if measured.nodes and measured.operation != "delete" else ""
    why = f" (changed: {', '.join(measured.why)})" if measured.why else ""
    return f"- `{_code(measured.scope)}` {_MEASUREMENT_CHANGE[measured.operation]}{over}{why}"


def _steps(title: str, work: Sequence[Work]) -> Iterator[str]:
    quiet = [f"- {_text(_title(step))}" for step in work if not step.lines]
    if work:
        yield "\n".join([title, *([""] if quiet else []), *quiet])
    yield from (_section(_title(step), step.lines) for step in work if step.lines)


def _title(work: Work) -> str:
    return f"{work.action}{_on(work.subjects)}: {_STEP_CHANGE[work.operation]}"


def _on(subjects: Sequence[str]) -> str:
    named = [subject for subject in folded(subjects) if subject]
    return f" on {', '.join(named)}" if named else ""


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{_code(name)}`" for name in folded(names))


def _section(title: str, lines_: Sequence[str]) -> str:
    return f"<details><summary>{_text(title)}</summary>\n\n{_fenced(chr(10).join(lines_), 'diff')}\n</details>"


def _code(text: str) -> str:
    return re.sub(r"[^\w.: \[\]-]", "?", text)


def _text(text: str) -> str:
    """Escape text so that it has no effect as Markdown, HTML, a mention, a reference or a link.

    GitHub finds the last three in the rendered text, where an entity is its character again; a zero-width space after
    it prevents that.
    """
    escaped = re.sub(r"([\\`*_{}\[\]<>#|@!~&])", lambda match: f"&#{ord(match[1])};", one_line(" ".join(text.split())))
    escaped = re.sub(r"(&#64;|&#35;|://|\bGH-|\bwww\.)", r"\1&#8203;", escaped, flags=re.IGNORECASE)
    # These characters at the start of a line could make a list, a heading or a rule.
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda match: f"{match[1] or ''}&#{ord(match[2] or match[3])};", escaped)


def _fenced(text: str, kind: str = "") -> str:
    """Return the text in a fence longer than any in the text."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or [""]))
    return f"\n{fence}{kind}\n{lines(text)}\n{fence}"


def _cut(parts: Sequence[str]) -> str:
    """Join as many whole parts as fit, so that no fence stays open."""
    text = "\n\n".join(parts) + "\n"
    if len(text) <= LONGEST:
        return text
    kept, room = 0, LONGEST
    while len(parts[kept]) + 2 <= room:
        room -= len(parts[kept]) + 2
        kept += 1
    return "\n\n".join([*parts[:kept], "The rest does not fit: see the log of the preview.\n"])
