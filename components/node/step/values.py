"""Convert a step's JSON values to the arguments of a phase.

A phase takes the step, and then the values that it reads: the parameter `users_lines` is the value of that name. If
others read the same values, it takes one dataclass instead, whose fields have these names.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

Phase = Callable[..., None]


def _parameters(phase: Phase) -> list[tuple[str, Any]]:
    """Return the names and types of a phase's parameters after the step."""
    return [item for item in typing.get_type_hints(phase).items() if item[0] != "return"][1:]


def names(phase: Phase) -> frozenset[str]:
    """Return the names of the values that a phase reads."""
    fields = (
        [field.name for field in dataclasses.fields(wanted)] if dataclasses.is_dataclass(wanted) else [name]
        for name, wanted in _parameters(phase)
    )
    return frozenset(name for group in fields for name in group)


def arguments(phase: Phase, values: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a phase after the step. Raises ValueError as `read_values` does."""
    return [
        read_values(wanted, values) if dataclasses.is_dataclass(wanted) else _value(name, wanted, values)
        for name, wanted in _parameters(phase)
    ]


def read_values(wanted: Any, values: Mapping[str, Any]) -> Any:
    """Return an instance of a dataclass. Raises ValueError for a value that is missing or has another type."""
    hints = typing.get_type_hints(wanted)
    return wanted(**{field.name: _value(field.name, hints[field.name], values) for field in dataclasses.fields(wanted)})


def _value(name: str, wanted: Any, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise ValueError(f"the step lacks the value {name}")
    try:
        return _convert(wanted, values[name])
    except (TypeError, ValueError) as error:
        raise ValueError(f"the value {name} is not {wanted}: {error}") from error


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
