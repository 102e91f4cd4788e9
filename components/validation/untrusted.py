"""Read values from JSON that a user's process may have written, into dataclasses by the types of their fields. Pure."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast

T = TypeVar("T")
# A node's name, which is shown unquoted.
Name = Annotated[str, r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"]
LATEST = 253_402_300_799  # the last second of the year 9999; no other number is as large
_LINE = re.compile(r"# tailrack (\S+) ([A-Za-z0-9][\w.-]{0,252}) ([\[{].*)", re.ASCII)


def read(wanted: type[T], data: object, *, exact: bool = False) -> T:
    """Return a dataclass or a named tuple. Raises ValueError that names a wrong key.

    exact   refuse other keys instead of ignoring them
    """
    hints = _hints(cast("Any", wanted))
    if isinstance(data, list | tuple) and issubclass(wanted, tuple):
        data = dict(zip(hints, data, strict=True))
    if not isinstance(data, Mapping):
        raise ValueError(f"{wanted.__name__} must be a JSON object")
    if exact and (unknown := sorted(map(str, data.keys() - hints.keys()))):
        raise ValueError(f"unknown keys: {', '.join(unknown)}")
    values = {}
    for key in hints.keys() & data.keys():
        try:
            values[key] = value_of(hints[key], data[key])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{key}: {error}") from None
    try:
        return wanted(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


def read_or_default(wanted: type[T], data: object, *, exact: bool = False) -> T:
    """Return a dataclass, with its defaults if the data has another form."""
    try:
        return read(wanted, data, exact=exact)
    except (ValueError, RecursionError):
        return wanted()


def value_of(hint: Any, value: Any) -> Any:
    """Return a value of a type. Raises ValueError for another type, or a value outside its pattern or range.

    A float is from 0 to LATEST.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    rule = parts[1] if origin is Annotated else None
    if isinstance(rule, str) and isinstance(value, str) and re.fullmatch(rule, value, re.ASCII):
        return value
    if isinstance(rule, range) and type(value) is int and value in rule:
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else value_of(parts[0], value)
    if origin is tuple and parts[-1] is not ... and isinstance(value, list | tuple):
        return tuple(value_of(part, item) for part, item in zip(parts, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {value_of(parts[0], key): value_of(parts[1], item) for key, item in value.items()}
    # Annotated is a class too (Python 3.11).
    is_list = origin is not Annotated and isinstance(origin, type) and not issubclass(origin, Mapping)
    if is_list and isinstance(value, list | tuple):
        return (frozenset if origin is frozenset else tuple)(value_of(parts[0], item) for item in value)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return read(hint, value)
    if isinstance(value, bool):
        valid = hint is bool
    elif hint is float:
        valid = isinstance(value, int | float) and 0 <= value <= LATEST
    else:
        valid = hint in (int, str) and isinstance(value, hint) and (hint is str or abs(value) < 2**63)
    if valid:
        return float(value) if hint is float else value
    raise ValueError(f"{str(value)[:100]!r} has another type or form")


@cache
def _hints(wanted: Any) -> dict[str, Any]:
    return typing.get_type_hints(wanted, include_extras=True)


def line_of(word: str, node: str, data: object) -> str:
    """Return a line of a job's output with a node's data, without line breaks or incomplete characters."""
    return f"# tailrack {word} {node} {json.dumps(data, sort_keys=True)}"


def lines_in(output: str, word: str) -> str:
    """Return the lines of a job's output with data of a kind."""
    return "".join(line + "\n" for line in output.splitlines() if line.startswith(f"# tailrack {word} "))


def data_in(output: str, word: str) -> dict[str, Any]:
    """Return the data of a kind by node, from each node's first line that is well-formed."""
    data: dict[str, Any] = {}
    for text in output.split("\n"):
        match = _LINE.fullmatch(text.rstrip())
        if match and match[1] == word and match[2] not in data:
            with suppress(ValueError, RecursionError):
                data[match[2]] = json.loads(match[3])
    return data
