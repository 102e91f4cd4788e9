"""The names that steps had in earlier versions.

Engines, and the commands that read an engine's state, identify a step by its name. An alias tells the engine that a
step was renamed, so that it does not undo the old one and create a new one.

To rename a kind of step, add its old name here. Never remove one: a stack may come from any release.
"""

from __future__ import annotations

# The last part of a step's name (`a1-check`) to its earlier forms, newest first.
FORMER = {"check": ("gate",), "register": ("member",)}
_CURRENT = {former: kind for kind, names in FORMER.items() for former in names}


def former_names(step: str) -> list[str]:
    """Return the earlier names of a step: `a1-gate` for `a1-check`."""
    machine, _, kind = step.rpartition("-")
    return [f"{machine}-{former}" for former in FORMER.get(kind, ()) if machine]


def current_name(step: str) -> str:
    """Return the name of a step in this version: `a1-check` for `a1-gate` and for `a1-check`."""
    machine, _, kind = step.rpartition("-")
    return f"{machine}-{_CURRENT.get(kind, kind)}" if machine else step
