"""Find JSON among other text, or JSON that was cut off. Pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A long text may have many braces without JSON, and parsing starts again at each.
_MOST_TRIES = 64
_NEXT = re.compile(r"\s*([,\]])\s*")
_CLOSING = {"{": "}", "[": "]"}


def first_object(
    text: str, wanted: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> tuple[Mapping[str, Any], bool]:
    """Return the first object that `wanted` accepts, and whether it is complete.

    Of a truncated object, return the part that is complete. Empty without an object. Never raises.
    """
    decoder, start = json.JSONDecoder(), text.find("{")
    starts = list[int]()
    while start >= 0 and len(starts) < _MOST_TRIES:
        try:
            value, end = decoder.raw_decode(text, start)
            if isinstance(value, dict) and wanted(value):
                return value, True
        except (ValueError, RecursionError):
            starts.append(start)
            end = start + 1
        start = text.find("{", end)
    for start in starts:
        value = _closed(text[start:])
        if value and wanted(value):
            return value, False
    return {}, False


def elements(text: str, name: str) -> Iterator[Any]:
    """Yield the elements of the first list with this name, one at a time: all at once need many times their text.

    Raise ValueError if there is no such list, or it was cut off. Other text may precede the JSON.
    """
    begin = re.search(rf'"{name}"\s*:\s*\[\s*', text)
    if not begin:
        raise ValueError(f"no list of {name}")
    decoder, position = json.JSONDecoder(), begin.end()
    if text.startswith("]", position):
        return
    while True:
        try:
            element, position = decoder.raw_decode(text, position)
        except RecursionError as error:
            raise ValueError(f"the list of {name} is nested too deeply") from error
        yield element
        match = _NEXT.match(text, position)
        if not match:
            raise ValueError(f"the list of {name} was cut off")
        if match[1] == "]":
            return
        position = match.end()


def _closed(text: str) -> Mapping[str, Any]:
    """Return the object in a truncated text up to its last complete element."""
    opened: list[str] = []
    complete = ""
    quoted = escaped = False
    for position, letter in enumerate(text):
        if quoted:
            quoted, escaped = escaped or letter != '"', not escaped and letter == "\\"
        elif letter == '"':
            quoted = True
        elif letter in _CLOSING:
            opened.append(_CLOSING[letter])
        elif opened and letter == opened[-1]:
            opened.pop()
            complete = text[: position + 1] + "".join(reversed(opened))
    try:
        value = json.loads(complete)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def objects_in(whole: object, name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list in an object, without elements of other types."""
    value = whole.get(name) if isinstance(whole, Mapping) else None
    return [element for element in value if isinstance(element, Mapping)] if isinstance(value, list) else []
