"""The `make` commands in messages; each names its stack, so that it means the same in every shell."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Make:
    """A renderer of `make` commands for one stack: `make("down", CLUSTER="gone")`.

    A command names even the default stack, because a shell may have another one in STACK.

    stack    the stack's name; empty for a command without a stack
    engine   the value of ENGINE; empty if unset
    """

    stack: str = ""
    engine: str = ""

    @classmethod
    def of(cls, stack: str) -> Make:
        """Return the renderer for a stack, with the engine of the environment."""
        return cls(stack, os.environ.get("ENGINE", ""))

    def at(self, stack: str) -> Make:
        """Return the renderer for another stack."""
        return replace(self, stack=stack)

    def __call__(self, target: str, **overrides: str) -> str:
        """Return the command of a target, quoted for a shell."""
        variables = {"STACK": self.stack, "ENGINE": self.engine, **overrides}
        return " ".join(["make", target, *(f"{name}={_quoted(value)}" for name, value in variables.items() if value)])


def _quoted(value: str) -> str:
    value = value.replace("$", "$$")  # make expands $
    quoted = shlex.quote(value)
    if quoted == value or "'" not in value or set(value) & set('"$`\\!'):
        return quoted
    return f'"{value}"'
