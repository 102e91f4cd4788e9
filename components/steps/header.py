"""The header of a step: the values that its script reads, as assignments of the shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from components.roles.role import Value

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def header(values: Mapping[str, Value]) -> str:
    """Return quoted assignments, one a line.

    Lists become one item a line, the items of a table's rows stand with a space between; truth values are `true` and
    `false`. Raises ValueError for a name that is not an upper-case shell name.
    """
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name a step's header can have (upper case, digits, underscores)")
    return "\n".join(f"{name}={shlex.quote(_text(value))}" for name, value in sorted(values.items()))


def _text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return "\n".join(str(row) if isinstance(row, str | int) else " ".join(map(str, row)) for row in value)
