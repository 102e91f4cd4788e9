"""What a run would do, as the comment on a pull request: which machines come and go, what runs again and why."""

from __future__ import annotations

import re
from collections.abc import Sequence

from driver.changed_lines import changed_lines
from driver.checks import Checks
from driver.progress import describe
from engine.events import Event, Summary

MARK = "<!-- tailrack preview of stack {stack} -->"  # by which the next run finds the comment and replaces it
LONGEST = 60_000  # characters; GitHub takes 65,536
_MACHINE = "tailrack:cluster:ComputeNode"
_WORDS = {"create": "comes", "delete": "goes", "replace": "is made anew"}
_DOES = {"create": "runs", "update": "runs again", "replace": "runs anew", "delete": "is undone"}


def comment(stack: str, events: Sequence[Event], summary: Summary, checks: Checks) -> str:
    """Return Markdown for a stack's preview: what was found first, then what would be done.

    events   all of the preview's, which the checks have looked at
    """
    started = [event for event in events if event.kind == "start" and event.operation != "same"]
    machines = [event for event in started if event.type == _MACHINE and event.operation in _WORDS]
    steps = [event for event in started if not event.type.startswith(("tailrack:", "pulumi:"))]
    counts = ", ".join(f"{count} to {name}" for name, count in summary.counts.items() if count and name != "same")
    parts = [MARK.format(stack=stack), f"### tailrack: stack `{_code(stack)}`"]
    if found := [f"- {_text(line)}" for line in checks.lines()]:
        head = "**Refused until it is asked for by name:**" if checks.refused else "**Asked for by name:**"
        parts.append("\n".join([head, "", *found]))
    if not summary.ok:
        parts.append("**The preview failed.** " + "".join(_fenced(failure.message) for failure in summary.failures))
    parts.append(f"{counts or 'Nothing to change'}, {summary.counts['same']} unchanged.")
    if machines:
        named = ", ".join(f"`{_code(event.name)}` {_WORDS[event.operation]}" for event in machines)
        parts.append(f"**Machines:** {named}.")
    quiet: list[str] = []
    for event in steps:
        title = f"{describe(event.command, event.name)} {_DOES[event.operation]}"
        if lines := changed_lines(event.before, event.after):
            parts.append(
                f"<details open><summary>{_text(title)}</summary>\n\n{_fenced(*lines, kind='diff')}\n</details>"
            )
        else:
            quiet.append(title)
    if quiet:
        parts.append("\n".join(f"- {_text(title)}" for title in quiet))
    return _cut("\n\n".join(parts) + "\n")


def _code(text: str) -> str:
    return re.sub(r"[^\w.:-]", "?", text)


def _text(text: str) -> str:
    """Plain text: nothing in it is Markdown, a mention or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|@!~&])", lambda found: f"&#{ord(found[1])};", " ".join(text.split()))


def _fenced(*lines: str, kind: str = "") -> str:
    """Lines in a fence that none of them can end."""
    text = "\n".join(lines)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or [""]))
    return f"\n{fence}{kind}\n{text}\n{fence}"


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    # At the end of a part, so that no fence stays open.
    return text[: text.rindex("\n\n", 0, LONGEST)] + "\n\nThe rest is left out: see the log of the preview.\n"
