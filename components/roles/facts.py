"""How what a machine reports is read: each fact that a role names has a reader, which gives its type and bounds.

A reader takes any value that JSON can hold, and returns what the program goes on with, or raises ValueError. A machine
that has been taken over says what it likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Reader = Callable[[object], Any]

# Items of a list that says nothing else.
MOST_ITEMS = 16
VERSION = r"[0-9][A-Za-z0-9.+:~-]{0,63}"


def whole(least: int, most: int) -> Reader:
    """Return the reader of a whole number between the two, both included."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def matching(pattern: str) -> Reader:
    """Return the reader of a text that is wholly of a pattern, which bounds its length."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError
        return value

    return read


def truth(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def text(most: int) -> Reader:
    """Return the reader of words for people, on one line of at most so many characters."""

    def read(value: object) -> str:
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise ValueError
        return value

    return read


def list_of(parse: Reader, most: int = MOST_ITEMS) -> Reader:
    """Return the reader of a list of at most so many items."""

    def read(value: object) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError
        return [parse(item) for item in value]

    return read


def object_of(fields: Mapping[str, Reader]) -> Reader:
    """Return the reader of an object that has these fields and no others."""

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != fields.keys():
            raise ValueError
        return {name: parse(value[name]) for name, parse in fields.items()}

    return read


version = matching(VERSION)
