"""What of a step's inputs is about to change, as lines: never an opaque `stdin`, never a secret.

A step sends its values in front of its script (components/steps/step.py), the files that it writes among them, so the
difference between two of them is the difference between two versions of slurm.conf, of exports, of a user list.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from engine.values import HIDDEN

_SCRIPT = "\n#!/bin/bash\n"  # what follows the values
_VALUE = re.compile(r"""^([A-Z][A-Z0-9_]*)=((?:'[^']*'|"[^"]*"|[^\s'"])*)$""", re.MULTILINE)
_MOST_LINES = 40  # of one value
_LONGEST = 200  # characters of a line
# Texts that say nothing to a script but that it should run again.
_SILENT = {"STEP_NAME", "STEP_LOCK"}
# Of a step whose script lies on the machine (Machine.scripts_folder).
_DIGEST = re.compile(r"\.tailrack/(?:[\w.-]+/)?scripts/[0-9a-f]{64}")
_KNOWN_AS = {"SLURM_SLURM_CONF": "slurm.conf", "USERS_LINES": "users", "NODE_EXPORT": "exports"}
_COMMANDS = ("create", "update", "delete")
_ANOTHER = "# its script changes: by what the config adds or takes away, or by another version of tailrack"


def changed_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what changes between two inputs of a command, as lines of a diff.

    A line starts with `- ` or `+ ` (a line of a value that goes or comes), or `# ` (words about what follows). None
    where the command comes or goes as a whole.
    """
    lines: list[str] = []
    if not before or not after:
        return lines
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if key in _COMMANDS and isinstance(old, str) and isinstance(new, str):
            lines += _of_commands(key, old, new)
        elif "remotePath" in after:
            lines += _of_copies(key, old, new)
        elif key == "stdin":
            lines += _of_stdin(old, new)
        elif key == "acl" and isinstance(old, str) and isinstance(new, str) and UNKNOWN not in (old, new):
            lines += ["# the tailnet's policy", *difference(old, new)]
        elif key == "triggers":
            lines.append("# what it measures is another" if "update" in after else "# it is asked to be made anew")
        else:
            lines.append(f"# its {_words(key)} changes")
    # What is hidden looks the same before and after.
    if not lines and HIDDEN in (*before.values(), *after.values()):
        lines.append("# a secret of it, or its connection, changes")
    # A step has several commands, of one script.
    while lines.count(_ANOTHER) > 1:
        lines.remove(_ANOTHER)
    return lines


def _of_commands(key: str, old: str, new: str) -> Iterator[str]:
    if _DIGEST.findall(old) != _DIGEST.findall(new):
        yield _ANOTHER
    if _DIGEST.sub("", old) != _DIGEST.sub("", new):
        yield f"# its {key} changes"


def _of_copies(key: str, old: object, new: object) -> Iterator[str]:
    if key == "triggers":
        yield "# the machine is another, or is to be repaired"
    elif key != "source":
        yield f"# its {_words(key)} changes"
    elif not (isinstance(old, dict) and isinstance(new, dict) and old.get("hash") == new.get("hash")):
        yield _ANOTHER


def _of_stdin(old: object, new: object) -> Iterator[str]:
    if old == HIDDEN and new == UNKNOWN:
        yield "# with a secret that is made anew"
    elif UNKNOWN in (old, new):
        yield "# with values that are known once the steps before it have run"
    elif not isinstance(old, str) or not isinstance(new, str) or HIDDEN in (old, new):
        yield "# it becomes, or was, a secret"
    else:
        yield from _of_texts(old, new)


def _of_texts(old: str, new: str) -> Iterator[str]:
    (before, old_script), (after, new_script) = values_and_script(old), values_and_script(new)
    for name in sorted((before.keys() | after.keys()) - _SILENT):
        was, becomes = before.get(name, ""), after.get(name, "")
        if was == becomes:
            continue
        yield f"# {_words(name)}"
        told = [line for line in difference(was, becomes) if line[2:].strip()]
        yield from told[:_MOST_LINES]
        if len(told) > _MOST_LINES:
            yield f"# and {len(told) - _MOST_LINES} more lines"
    if old_script != new_script:
        yield _ANOTHER


def values_and_script(stdin: str) -> tuple[dict[str, str], str]:
    """Return what a step is sent: its values by name, and its script."""
    header, _, script = stdin.partition(_SCRIPT)
    return {name: "".join(shlex.split(quoted)) for name, quoted in _VALUE.findall(header)}, script


def difference(old: str, new: str) -> Iterator[str]:
    """Give the lines that go, as `- line`, and those that come, as `+ line`."""
    before, after = _lines(old), _lines(new)
    if before == after:
        return
    if len(before) <= 1 and len(after) <= 1:
        lines = [*(f"- {line}" for line in before), *(f"+ {line}" for line in after)]
    else:
        shown = difflib.unified_diff(before, after, n=0, lineterm="")
        lines = [f"{line[0]} {line[1:]}" for line in shown if line[0] in "+-" and line[:3] not in ("---", "+++")]
    for line in lines:
        yield line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _lines(text: str) -> list[str]:
    """The lines of a text; of a JSON object with texts in it (files by name), the lines of these; any other's parts."""
    if text.startswith("{"):
        try:
            content = json.loads(text)
        except ValueError:
            return text.splitlines()
        if isinstance(content, dict) and all(isinstance(item, str) for item in content.values()):
            return [f"{name}: {line}" for name, item in sorted(content.items()) for line in item.splitlines()]
        if len(text.splitlines()) == 1:
            return json.dumps(content, indent=1).splitlines()
    return text.splitlines()


def _words(name: str) -> str:
    """`SLURM_CONF` and `privateKey` as words; what people know by another name, as that."""
    return _KNOWN_AS.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
