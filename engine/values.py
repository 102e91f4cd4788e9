"""Property values as Pulumi sends them: JSON with marks for secret and for unknown values."""

from collections.abc import Callable
from typing import Any

from pulumi.runtime.rpc import UNKNOWN, is_rpc_secret, wrap_rpc_secret


def convert(value: Any, secret: Callable[[Any], Any], leaf: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a copy of value with `secret` applied to every secret and `leaf` to every other scalar."""
    if is_rpc_secret(value):
        return secret(value["value"])
    if isinstance(value, dict):
        return {key: convert(item, secret, leaf) for key, item in value.items()}
    return [convert(item, secret, leaf) for item in value] if isinstance(value, list) else leaf(value)


def plain(value: Any) -> Any:
    """Return value without any secret marks."""
    return convert(value, plain)


def as_secret(value: Any) -> Any:
    """Return value as one secret, without the marks inside it."""
    return wrap_rpc_secret(plain(value))


def leaves(value: Any) -> list[Any]:
    """Return every scalar in value, secret or not."""
    scalars: list[Any] = []
    convert(plain(value), plain, scalars.append)
    return scalars


def is_unknown(value: Any) -> bool:
    """Return whether anything in value is unknown."""
    return UNKNOWN in leaves(value)


def secret_lines(value: Any) -> set[str]:
    """Return the lines of secrets in value, from six characters on. Shorter ones would hide common words."""
    secrets: list[Any] = []
    convert(value, lambda secret: secrets.extend(leaves(secret)))
    return {line for text in secrets for line in str(text).splitlines() if len(line) >= 6}
