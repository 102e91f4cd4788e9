"""Dashboards held against Grafana's own schema, as the models of its SDK for Python have it.

The SDK reads what it knows and checks nothing: a key that it does not know is gone when it writes the dashboard again,
and a value is whatever it was. Both are looked for here.
"""

import enum
import json
import typing
import warnings
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units

with warnings.catch_warnings():
    # There is a second format, which older releases of Grafana do not read.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.models.dashboard import Dashboard

# Kinds of panels and of queries, whose keys are read by models of their own.
register_default_plugins()
UNITS = {value for value in vars(units).values() if isinstance(value, str)}


def faults(dashboard: dict[str, Any]) -> list[str]:
    """Return what Grafana's schema does not have, each with its path; a dashboard as its JSON is read."""
    known = Dashboard.from_json(dashboard)
    written = json.loads(JSONEncoder().encode(known))
    return [*_lost(dashboard, written, ""), *_wrong(known, Dashboard, "")]


def _lost(given: Any, written: Any, at: str) -> Iterator[str]:
    """Keys that Grafana does not know."""
    if isinstance(given, dict) and isinstance(written, dict):
        for key, value in given.items():
            if key in written:
                yield from _lost(value, written[key], f"{at}.{key}")
            else:
                yield f"{at}.{key} is no key of Grafana's"
    elif isinstance(given, list) and isinstance(written, list):
        for index, pair in enumerate(zip(given, written, strict=True)):
            yield from _lost(*pair, f"{at}[{index}]")
    elif given != written:
        yield f"{at} is {given!r} and becomes {written!r}"


def _wrong(value: Any, hint: Any, at: str) -> Iterator[str]:
    """Values of another type than the model says, or of none of its choices."""
    if type(value).__module__.startswith("grafana_foundation_sdk.models"):
        for name, its in typing.get_type_hints(type(value)).items():
            yield from _wrong(getattr(value, name), its, f"{at}.{name}")
        return
    inner = typing.get_args(hint)
    match typing.get_origin(hint):
        case typing.Union:
            tried = [list(_wrong(value, one, at)) for one in inner]
            yield from [] if [] in tried else min(tried, key=len)
        case origin if origin is list and isinstance(value, list):
            for index, one in enumerate(value):
                yield from _wrong(one, inner[0], f"{at}[{index}]")
        case origin if origin is dict and isinstance(value, dict):
            for key, one in value.items():
                yield from _wrong(one, inner[1], f"{at}.{key}")
        case _:
            if not _fits(value, hint):
                yield f"{at} is {value!r}, and should be {getattr(hint, '__name__', hint)}"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value without parts is what a hint says."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if not isinstance(hint, type) or hint is object:
        return hint in (typing.Any, object)
    if issubclass(hint, enum.Enum):
        return value in {one.value for one in hint} or isinstance(value, hint)
    # JSON has one kind of numbers, and Python's True is a 1.
    return isinstance(value, (float, int) if hint is float else hint) and isinstance(value, bool) == (hint is bool)
