"""What a run would do, as the comment on a pull request: what people look for first, and alike steps told once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from cli.checks import Checks
from cli.output.terminal import lines, one_line
from cli.preview.names import folded
from cli.preview.plan import Machine, Measured, Plan, Work
from engine.events import Failure

MARK = "<!-- tailrack preview of stack {stack} -->"  # by which the next run finds the comment and replaces it
LONGEST = 60_000  # characters; GitHub takes 65,536
LONGEST_FAILURE = 10_000
_COMES = {"create": "comes", "delete": "goes", "replace": "is made anew"}
_MEASURED = {"create": "for the first time", "delete": "no more", "replace": "anew"}
_DOES = {"create": "runs", "update": "runs again", "replace": "runs anew", "delete": "is undone"}


def comment(stack: str, plan: Plan, failures: Sequence[Failure], checks: Checks, costs: Sequence[str] = ()) -> str:
    """Return Markdown for a stack's preview: what was found first, then what would be done.

    costs   sentences on what becomes of them
    """
    parts = [MARK.format(stack=_code(stack)), f"### tailrack: stack `{_code(stack)}`"]
    if found := [f"- {_text(line)}" for line in checks.lines()]:
        head = "**Refused:**" if checks.refused else "**Asked for by name:**"
        parts.append("\n".join([head, "", *found]))
    if failures:
        parts.append(
            "**The preview failed.** " + "".join(_fenced(failure.message[:LONGEST_FAILURE]) for failure in failures)
        )
    parts.append(plan.totals)
    if costs:
        parts.append(f"**Costs:** {' '.join(map(_text, costs))}")
    parts += _first_looked_for(plan)
    parts += _steps("**Steps:**", plan.work)
    if may := plan.perhaps:
        says = "**May run again**, where a machine answers otherwise than it did when it was last asked:"
        parts.append("\n".join([says, "", *(f"- {_text(one.words)}{_of(one.subjects)}" for one in may)]))
    parts += [_section(f"files of the measurement {one.scope}", one.files) for one in plan.measured if one.files]
    return _cut(parts)


def _first_looked_for(plan: Plan) -> Iterator[str]:
    """Machines, users, lines of slurm.conf and of exports, and what is measured."""
    if plan.machines:
        yield f"**Machines:** {', '.join(_machines(plan.machines))}."
    for effect in plan.effects:
        yield f"**{effect.name}:**\n{_fenced(chr(10).join(effect.lines), 'diff')}"
    if plan.measured:
        yield "\n".join(["**Measured:**", "", *map(_measured, plan.measured)])


def _machines(machines: Iterable[Machine]) -> Iterator[str]:
    """Those that come together, of however many a few words."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for machine in machines:
        kinds.setdefault((machine.operation, machine.what), []).append(machine.name)
    for (operation, what), names in kinds.items():
        yield f"{_names(names)}{f' ({what})' if what else ''} {_COMES[operation]}"


def _measured(one: Measured) -> str:
    over = f", over {_names(one.nodes)}" if one.nodes and one.operation != "delete" else ""
    why = f" (another: {', '.join(one.why)})" if one.why else ""
    return f"- `{_code(one.scope)}` {_MEASURED[one.operation]}{over}{why}"


def _steps(title: str, work: Sequence[Work]) -> Iterator[str]:
    quiet = [f"- {_text(_title(one))}" for one in work if not one.lines]
    if work:
        yield "\n".join([title, *([""] if quiet else []), *quiet])
    yield from (_section(_title(one), one.lines) for one in work if one.lines)


def _title(one: Work) -> str:
    return f"{one.words}{_of(one.subjects)}: {_DOES[one.operation]}"


def _of(subjects: Sequence[str]) -> str:
    named = [subject for subject in folded(subjects) if subject]
    return f" of {', '.join(named)}" if named else ""


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{_code(name)}`" for name in folded(names))


def _section(title: str, told: Sequence[str]) -> str:
    """Lines that a reader opens."""
    return f"<details><summary>{_text(title)}</summary>\n\n{_fenced(chr(10).join(told), 'diff')}\n</details>"


def _code(text: str) -> str:
    return re.sub(r"[^\w.: \[\]-]", "?", text)


def _text(text: str) -> str:
    """Plain text: nothing in it is Markdown, HTML, a mention, a reference or a link.

    GitHub looks for the last three in what the browser would show, where an entity is its character again: a space
    without width behind it keeps them from being found.
    """
    words = re.sub(r"([\\`*_{}\[\]<>#|@!~&])", lambda found: f"&#{ord(found[1])};", one_line(" ".join(text.split())))
    words = re.sub(r"(&#64;|&#35;|://|\bGH-|\bwww\.)", r"\1&#8203;", words, flags=re.IGNORECASE)
    # At the beginning of a line it could be a list, a heading or a rule.
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda at: f"{at[1] or ''}&#{ord(at[2] or at[3])};", words)


def _fenced(text: str, kind: str = "") -> str:
    """Lines in a fence that none of them can end."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or [""]))
    return f"\n{fence}{kind}\n{lines(text)}\n{fence}"


def _cut(parts: Sequence[str]) -> str:
    """The parts as far as there is room for whole ones, so that no fence stays open."""
    text = "\n\n".join(parts) + "\n"
    if len(text) <= LONGEST:
        return text
    kept, room = 0, LONGEST
    while len(parts[kept]) + 2 <= room:
        room -= len(parts[kept]) + 2
        kept += 1
    return "\n\n".join([*parts[:kept], "The rest is left out: see the log of the preview.\n"])
