"""The bash phases of a step. All of them run in one shell, so that they share variables and functions.

The shell gets the step's functions and values on its stdin, then one call per line. It answers each, and ends with an
error when a call fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from components.node import files
from components.node.failure import Failure
from components.node.step.step import Step

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
# Descriptors 3 and 4 have the calls and the replies. The shell gets their present numbers.
# It is no function: where a function that runs in another one ends the shell, bash complains in the log.
_SERVE = """trap end_calls EXIT
while IFS= read -r -u 3 CALL; do
    eval "$CALL"
    echo done >&4
done
"""
_START = 'exec 3<&{calls} 4>&{replies} {calls}<&- {replies}>&-; eval "$(cat 3<&- 4>&-)"'


def assignments(values: Mapping[str, Any]) -> str:
    """Return quoted shell assignments, one per line.

    A list becomes one item per line, a table one row per line with spaces between its items; booleans become `true`
    and `false`. Raises ValueError for a name that is not an upper-case shell name.
    """
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a name of a shell variable (upper case, digits, underscores)")
    return "\n".join(f"{name}={shlex.quote(as_text(value))}" for name, value in sorted(values.items()))


def as_text(value: Any) -> str:
    """Return a value as bash gets it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return "\n".join(str(row) if isinstance(row, str | int) else " ".join(map(str, row)) for row in value)


class Shell:
    """The shell of a step's bash phases.

    answer   the path of a file of root's, in which the shell leaves the reason of a failure
    log      the descriptor for its output
    """

    def __init__(self, text: str, values: Mapping[str, Any], step: Step, answer: str, log: int) -> None:
        self._step = step
        self._answer = answer
        files.remove(answer)
        calls, self._calls = os.pipe()
        self._replies, replies = os.pipe()
        own = {
            "HOST_NAME": step.host,
            "STEP_NAME": step.name,
            "STEP_REPAIR": step.repair,
            "ANSWER": files.on_disk(answer),
        }
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", _START.format(calls=calls, replies=replies), "bash"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(calls, replies),
        )
        os.close(calls)
        os.close(replies)
        self._reader = os.fdopen(self._replies, encoding="utf-8", errors="replace")
        if self._process.stdin:
            with suppress(BrokenPipeError), self._process.stdin as stdin:
                stdin.write(f"{assignments({**values, **own})}\n{text}\n{_SERVE}".encode())

    def call(self, *words: str) -> None:
        """Call a function. Raises Failure if it fails, with its reason."""
        changed = "yes" if self._step.changed else "''"
        self._ask(f"CHANGED={changed}; {shlex.join(words)} </dev/null 3<&- 4>&-")

    def assign(self, values: Mapping[str, Any]) -> None:
        """Change values. Raises ValueError for one of several lines: a call is one line."""
        line = "; ".join(assignments({name: value}) for name, value in values.items())
        if "\n" in line:
            raise ValueError("a changed value must be one line")
        self._ask(line or ":")

    def finish(self) -> None:
        """Let functions finish background work, and add the results of all calls to the step's."""
        self._step.results |= json.loads(self._ask("finish_calls"))
        self.close()

    def close(self) -> None:
        """End the shell."""
        with suppress(OSError):
            os.close(self._calls)
        self._calls = -1
        self._reader.close()
        self._process.wait()

    def _ask(self, line: str) -> str:
        with suppress(BrokenPipeError):
            os.write(self._calls, f"{line}\n".encode())
        reply = self._reader.readline()
        if reply:
            return reply.rstrip("\n")
        self.close()
        raise self._failure()

    def _failure(self) -> Failure:
        text = files.read(self._answer)
        files.remove(self._answer)
        told = json.loads(text) if text else {}
        return Failure(told.get("reason", ""), told.get("remedy", ""))
