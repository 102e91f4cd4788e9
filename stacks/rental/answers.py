"""Read the JSON answers of clouds' APIs, which may lack anything."""

from typing import Any

from stacks.http_client import ApiError

MOST_PRICE = 1e9  # of an hour; neither NaN nor infinity is below it


def value(answer: Any, *path: str) -> Any:
    """Return the value at a path of keys; None if it is not there."""
    for step in path:
        answer = answer.get(step) if isinstance(answer, dict) else None
    return answer


def text(answer: Any, *path: str) -> str:
    """Return a text or a whole number as a text; empty if it is not there."""
    found = value(answer, *path)
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""


def amount(answer: Any, *path: str) -> float | None:
    """Return a price; None if it is no finite number."""
    found = value(answer, *path)
    number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if number and 0 <= found < MOST_PRICE else None


def items(answer: Any, *path: str) -> list[Any]:
    """Return the items of a list; none if it is not there."""
    found = value(answer, *path)
    return found if isinstance(found, list) else []


def mappings(answer: Any, *path: str) -> list[dict[str, Any]]:
    """Return the mappings in a list; none if it is not there."""
    return [item for item in items(answer, *path) if isinstance(item, dict)]


def listed(answer: Any, name: str) -> list[dict[str, Any]]:
    """Return a list of mappings. Raises ApiError without one: a strange answer must not mean "no machines"."""
    found = value(answer, name)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ApiError(f"an answer of the cloud has no list {name}")
    return found


def machines(answer: Any, name: str) -> list[dict[str, Any]]:
    """Return the machines in an answer. Raises ApiError if one has no id, with which its rent could be ended."""
    found = listed(answer, name)
    if not all(text(item, "id") for item in found):
        raise ApiError(f"an answer of the cloud lists a machine without an id in {name}")
    return found
