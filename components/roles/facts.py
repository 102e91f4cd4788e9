"""Readers of the facts that machines report: each checks a fact's type and bounds.

A reader takes any JSON value and returns the checked value, or raises ValueError: a hostile machine may report
anything.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from components.validation.untrusted import value_of

Reader = Callable[[object], Any]

# The greatest length of a list if its role gives no other.
MOST_ITEMS = 16
VERSION = r"[0-9][A-Za-z0-9.+:~-]{0,63}"


def whole(least: int, most: int) -> Reader:
    """Return the reader of a whole number from `least` to `most`."""
    return partial(value_of, Annotated[int, range(least, most + 1)])


def matching(pattern: str) -> Reader:
    """Return the reader of a text that a pattern matches as a whole; the pattern bounds its length."""
    return partial(value_of, Annotated[str, pattern])


def text(most: int) -> Reader:
    """Return the reader of one line of printable text with at most `most` characters."""

    def read(value: object) -> str:
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise ValueError
        return value

    return read


def list_of(parse: Reader, most: int = MOST_ITEMS) -> Reader:
    """Return the reader of a list of at most `most` items."""

    def read(value: object) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError
        return [parse(item) for item in value]

    return read


def object_of(fields: Mapping[str, Reader]) -> Reader:
    """Return the reader of an object with exactly these fields."""

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != fields.keys():
            raise ValueError
        return {name: parse(value[name]) for name, parse in fields.items()}

    return read


truth: Reader = partial(value_of, bool)
version = matching(VERSION)
