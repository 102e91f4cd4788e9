"""Commands that people are told to run: each means the same stack wherever and whenever it is copied."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Make:
    """Renders `make` commands for one stack: `make("down", CLUSTER="gone")`.

    The stack is said even where it is the one that make takes by itself: a shell may have another one in STACK.

    stack    the stack's name; empty for a command that is of no stack
    engine   what ENGINE= said; empty where it was left out
    """

    stack: str = ""
    engine: str = ""

    @classmethod
    def of(cls, stack: str) -> Make:
        """The commands of a stack, with the engine that make was asked for."""
        return cls(stack, os.environ.get("ENGINE", ""))

    def at(self, stack: str) -> Make:
        """The commands of another stack."""
        return replace(self, stack=stack)

    def __call__(self, target: str, **words: str) -> str:
        """Return the command of a target, quoted for a shell."""
        given = {"STACK": self.stack, "ENGINE": self.engine, **words}
        return " ".join(["make", target, *(f"{name}={_quoted(value)}" for name, value in given.items() if value)])


def _quoted(value: str) -> str:
    value = value.replace("$", "$$")  # make's own
    quoted = shlex.quote(value)
    if quoted == value or "'" not in value or set(value) & set('"$`\\!'):
        return quoted
    return f'"{value}"'
