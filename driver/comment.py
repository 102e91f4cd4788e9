"""What a run would do, as the comment on a pull request: which machines come and go, what runs again and why."""

from __future__ import annotations

import re
from collections.abc import Sequence

from driver.changed_lines import changed_lines
from driver.checks import Checks
from driver.progress import describe
from driver.terminal import lines, one_line
from engine.events import Event, Summary

MARK = "<!-- tailrack preview of stack {stack} -->"  # by which the next run finds the comment and replaces it
LONGEST = 60_000  # characters; GitHub takes 65,536
LONGEST_FAILURE = 10_000
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
    parts = [MARK.format(stack=_code(stack)), f"### tailrack: stack `{_code(stack)}`"]
    if found := [f"- {_text(line)}" for line in checks.lines()]:
        head = "**Refused:**" if checks.refused else "**Asked for by name:**"
        parts.append("\n".join([head, "", *found]))
    if not summary.ok:
        parts.append(
            "**The preview failed.** "
            + "".join(_fenced(failure.message[:LONGEST_FAILURE]) for failure in summary.failures)
        )
    parts.append(f"{counts or 'Nothing to change'}, {summary.counts['same']} unchanged.")
    if machines:
        named = ", ".join(f"`{_code(event.name)}` {_WORDS[event.operation]}" for event in machines)
        parts.append(f"**Machines:** {named}.")
    quiet: list[str] = []
    for event in steps:
        title = f"{describe(event.command, event.name)} {_DOES[event.operation]}"
        if changed := changed_lines(event.before, event.after):
            diff = _fenced("\n".join(map(one_line, changed)), "diff")
            parts.append(f"<details open><summary>{_text(title)}</summary>\n\n{diff}\n</details>")
        else:
            quiet.append(title)
    if quiet:
        parts.append("\n".join(f"- {_text(title)}" for title in quiet))
    return _cut(parts)


def _code(text: str) -> str:
    return re.sub(r"[^\w.:-]", "?", text)


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
