"""Convert a section to plain data for another stack, without secrets, and back.

The other stack may be in another checkout with other keys. `shape` is a digest of the keys and their types, so a
stack rejects such a section instead of misreading it.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from components.settings.section import Section, keys_of

S = TypeVar("S", bound=Section)


@cache
def shape(model: type[Section]) -> str:
    """Return a digest of the keys of a section and their types, as 16 hexadecimal digits."""
    # Remove the memory addresses of validators, which differ in each process.
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", repr(_kinds(model))).encode()).hexdigest()[:16]


def _kinds(model: type[Section]) -> list[Any]:
    keys = sorted(keys_of(model).items())
    return [(name, str(key.info.annotation), [*map(_kinds, key.sections.values())]) for name, key in keys]


def to_plain(section: Section, model: type[Section]) -> dict[str, Any]:
    """Return the values of a section by the keys of `model`, without secrets and lists of items that need a secret."""
    section = section.for_export()
    values = {}
    for name, key in keys_of(model).items():
        items = [item for one in key.sections.values() if key.many for item in keys_of(one).values()]
        if not key.secret and not any(item.secret and item.info.is_required() for item in items):
            values[name] = _plain(getattr(section, name))
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return to_plain(value, type(value))
    return [_plain(item) for item in value] if isinstance(value, tuple) else to_jsonable_python(value)


def from_plain(model: type[S], values: Mapping[str, Any]) -> S:
    """Return the section that `to_plain` converted. Raises ValueError if the values do not fit the model."""
    return model.model_validate(values, context={"exported": True})


def whole_numbers(value: Any) -> Any:
    """Return values with integers as int: stack outputs have only floats."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
