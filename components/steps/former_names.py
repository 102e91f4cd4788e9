"""The names that steps had in earlier versions.

Engines, and the commands that read an engine's state, know a step by its name. An alias tells the engine that the step
of the old name is the renamed one, so that it neither undoes the one nor makes the other.

To rename a kind of step, add it here. Never take one away: a stack may come from any release.
"""

from __future__ import annotations

# The last part of a step's name (`a1-check`) to what it was before, newest first.
FORMER = {"check": ("gate",), "register": ("member",)}
_CURRENT = {former: kind for kind, names in FORMER.items() for former in names}


def former_names(step: str) -> list[str]:
    """Return the names that a step had before: of `a1-check`, `a1-gate`."""
    machine, _, kind = step.rpartition("-")
    return [f"{machine}-{former}" for former in FORMER.get(kind, ()) if machine]


def current_name(step: str) -> str:
    """Return the name that a step has in this version: of `a1-gate` as of `a1-check`, `a1-check`."""
    machine, _, kind = step.rpartition("-")
    return f"{machine}-{_CURRENT.get(kind, kind)}" if machine else step
