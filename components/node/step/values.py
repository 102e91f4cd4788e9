"""Convert a step's JSON values to the dataclass that a phase takes.

The field `users_lines` of a dataclass is the value `USERS_LINES` of the step.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

Phase = Callable[..., None]


def values_type(phase: Phase) -> type | None:
    """Return the dataclass that a phase takes as its second argument; None if it takes the step alone."""
    hints = [hint for name, hint in typing.get_type_hints(phase).items() if name != "return"]
    return hints[1] if len(hints) > 1 else None


def names(phase: Phase) -> frozenset[str]:
    """Return the names of the values that a phase reads, in upper case."""
    wanted = values_type(phase)
    return frozenset(field.name.upper() for field in dataclasses.fields(wanted)) if wanted else frozenset()


def read_values(wanted: type, values: Mapping[str, Any]) -> Any:
    """Return an instance of a dataclass. Raises ValueError for a value that is missing or has another type."""
    hints = typing.get_type_hints(wanted)
    parts = {}
    for field in dataclasses.fields(wanted):
        name = field.name.upper()
        if name not in values:
            raise ValueError(f"the step lacks the value {name}")
        try:
            parts[field.name] = _convert(hints[field.name], values[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"the value {name} is not {hints[field.name]}: {error}") from error
    return wanted(**parts)


def _convert(wanted: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        kept = [argument for argument in arguments if argument is not type(None)]
        return None if value is None else _convert(kept[0], value)
    if origin in (list, tuple):
        if isinstance(value, str):
            value = value.splitlines()
        items = [_convert(arguments[0], item) for item in value or ()]
        return items if origin is list else tuple(items)
    if origin is dict:
        return {key: _convert(arguments[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(wanted):
        return _row(wanted, value)
    if wanted is str:
        return _text(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise TypeError(f"it is {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise TypeError(f"it is {type(value).__name__}")
    return str(value)


def _row(wanted: Any, value: Any) -> Any:
    """Return a row of a table: a dataclass from its fields by name, from their list, or from one line of text."""
    if isinstance(value, str):
        value = value.split()
    hints = typing.get_type_hints(wanted)
    fields = dataclasses.fields(wanted)
    if len(value) > len(fields):
        raise ValueError(f"a row has {len(value)} parts instead of {len(fields)}")
    parts = value if isinstance(value, Mapping) else dict(zip((field.name for field in fields), value, strict=False))
    return wanted(**{name: _number_or(hints[name], part) for name, part in parts.items()})


def _number_or(wanted: Any, part: Any) -> Any:
    # A row that was one line of text has only words.
    return int(part) if wanted is int and isinstance(part, str) else _convert(wanted, part)
