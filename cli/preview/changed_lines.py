"""The changes of a step's inputs as readable lines without secrets.

A step sends its values, including files (components/steps/step.py). So the difference between two inputs is the
difference between two versions of slurm.conf, of exports, of a user list.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from components.settings.mask_secrets import MASK
from components.steps.command_line import read_request

_MOST_LINES = 40  # of one value
_LONGEST = 200  # characters of a line
# The digests in the command of a step: of its start, program and plan.
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b|\bstart-[0-9a-f]{8}\b")
_READABLE = {
    "slurm_slurm_conf": "slurm.conf",
    "users_lines": "users",
    "user_groups_lines": "groups",
    "user_groups_members": "members of groups",
    "user_keys_lines": "SSH keys of users",
    "node_export": "exports",
}
_NEW_SCRIPT = "# its script changes, because of the config or of another version of tailrack"


def changed_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the changes between two inputs of a command as lines of a diff.

    A line starts with `- ` or `+ ` (a removed or added line of a value), or `# ` (a comment about the next lines).
    Returns no lines if the whole command is new or removed.
    """
    lines: list[str] = []
    if not before or not after:
        return lines
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if key in ("create", "update", "delete") and isinstance(old, str) and isinstance(new, str):
            lines += _of_commands(key, old, new)
        elif "remotePath" in after:
            lines += _of_copies(key, old, new)
        elif key == "stdin":
            lines += _of_stdin(old, new)
        elif key == "acl" and isinstance(old, str) and isinstance(new, str) and UNKNOWN not in (old, new):
            lines += ["# the tailnet's policy", *difference(old, new)]
        elif key == "triggers":
            lines.append("# the measurement changes" if "update" in after else "# its triggers change")
        else:
            lines.append(f"# its {readable(key)} changes")
    # A masked secret looks the same before and after.
    if not lines and MASK in (*before.values(), *after.values()):
        lines.append("# a value beside a secret, or the connection, changes")
    # The commands of a step share one script.
    while lines.count(_NEW_SCRIPT) > 1:
        lines.remove(_NEW_SCRIPT)
    return lines


def _of_commands(key: str, old: str, new: str) -> Iterator[str]:
    if _DIGEST.findall(old) != _DIGEST.findall(new):
        yield _NEW_SCRIPT
    if _DIGEST.sub("", old) != _DIGEST.sub("", new):
        yield f"# its {key} changes"


def _of_copies(key: str, old: object, new: object) -> Iterator[str]:
    if key == "triggers":
        yield "# the machine was replaced, or a repair is requested"
    elif key != "source":
        yield f"# its {readable(key)} changes"
    elif not (isinstance(old, dict) and isinstance(new, dict) and old.get("hash") == new.get("hash")):
        yield _NEW_SCRIPT


def _of_stdin(old: object, new: object) -> Iterator[str]:
    if old == MASK and new == UNKNOWN:
        yield "# with a new secret"
    elif UNKNOWN in (old, new):
        yield "# with values that are unknown until earlier steps have run"
    elif not isinstance(old, str) or not isinstance(new, str) or MASK in (old, new):
        yield "# its input becomes, or was, a secret"
    else:
        yield from _of_requests(old, new)


def _of_requests(old: str, new: str) -> Iterator[str]:
    before, after = read_request(old), read_request(new)
    if before is None or after is None:
        yield _NEW_SCRIPT
        return
    for name in sorted(before.keys() | after.keys()):
        old_value, new_value = before.get(name, ""), after.get(name, "")
        if old_value == new_value:
            continue
        yield f"# {readable(name)}"
        changed = [line for line in difference(old_value, new_value) if line[2:].strip()]
        yield from changed[:_MOST_LINES]
        if len(changed) > _MOST_LINES:
            yield f"# and {len(changed) - _MOST_LINES} more lines"


def difference(old: str, new: str) -> Iterator[str]:
    """Give removed lines as `- line` and added lines as `+ line`."""
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
    """Return the lines of a text; for JSON with files by name, the lines of the files; for other JSON, its parts."""
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


def readable(name: str) -> str:
    """Return `SLURM_CONF` and `privateKey` as words, and the names of known files."""
    return _READABLE.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
