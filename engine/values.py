"""Property values as Pulumi sends them (JSON with signed mappings): secrets, unknowns, and hiding both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pulumi.runtime import rpc

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - the signature of a secret, not one
UNKNOWN = rpc.UNKNOWN
HIDDEN = "[secret]"


def is_secret(value: Any) -> bool:
    """Whether the value itself is marked as a secret."""
    return isinstance(value, dict) and value.get(SIGNATURE) == SECRET


def map_secrets(value: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return a copy of value with every outermost secret replaced by what `change` makes of it."""
    if is_secret(value):
        return change(value)
    if isinstance(value, dict):
        return {key: map_secrets(item, change) for key, item in value.items()}
    return [map_secrets(item, change) for item in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Return value without any secret marks."""
    return map_secrets(value, lambda secret: plain(secret["value"]))


def as_secret(value: Any) -> dict[str, Any]:
    """Return value as one secret, whatever was secret inside it."""
    return {SIGNATURE: SECRET, "value": plain(value)}


def leaves(value: Any) -> Iterator[Any]:
    """Yield every scalar in a plain value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def is_unknown(value: Any) -> bool:
    """Whether anything in value is not known yet."""
    return UNKNOWN in leaves(plain(value))


def secret_texts(value: Any) -> set[str]:
    """Return the lines of every secret text in value, for `mask`."""
    found: list[Any] = []
    map_secrets(value, lambda secret: found.extend(leaves(secret["value"])))
    return {line for text in found for line in str(text).splitlines()}


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return text with the secrets hidden, longest first; under six characters one would hide common words."""
    for secret in sorted((secret for secret in secrets if len(secret) >= 6), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
