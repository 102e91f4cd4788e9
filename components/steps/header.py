"""The header of a step: shell assignments of the values that its script reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from components.roles.role import Value

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def header(values: Mapping[str, Value]) -> str:
    """Return quoted assignments, one per line.

    A list becomes one item per line, a table one row per line with spaces between its items; booleans become `true`
    and `false`. Raises ValueError for a name that is not an upper-case shell name.
    """
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a name in a step's header (upper case, digits, underscores)")
    return "\n".join(f"{name}={shlex.quote(_text(value))}" for name, value in sorted(values.items()))


def _text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return "\n".join(str(row) if isinstance(row, str | int) else " ".join(map(str, row)) for row in value)
