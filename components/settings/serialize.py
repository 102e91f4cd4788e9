"""A section on its way to another stack: its values as plain data without secrets, and back into the section.

What one stack says, a stack of another checkout reads: the two have to mean the same by it. `shape` is a digest of the
keys and of what each accepts, so a section that was written with other keys is refused, never misread.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from components.settings.section import Section, keys_of

S = TypeVar("S", bound=Section)


@cache
def shape(model: type[Section]) -> str:
    """Return what the keys of a section accept, in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(sorted(_kinds(model, "")), sort_keys=True).encode()).hexdigest()[:16]


def _kinds(model: type[Section], path: str) -> Iterator[tuple[str, str]]:
    for name, key in keys_of(model).items():
        at = f"{path}.{name}"
        if key.section is not None:
            yield at, "list" if key.many else "mapping"
            yield from _kinds(key.section, at)
        else:
            # Where a check of a value lies in memory is another place in each process.
            yield at, re.sub(r" at 0x[0-9a-f]+", "", str(key.info.annotation))


def plain(section: Section, model: type[Section]) -> dict[str, Any]:
    """Return the values of a section by key, in the types of JSON. Secrets, and lists of what needs one, are left out.

    model   whose keys are meant: the section may be of a class with more of them
    """
    values = {}
    for name, key in keys_of(model).items():
        if key.help.secret or (key.section is not None and key.many and _needs_a_secret(key.section)):
            continue
        values[name] = _plain(getattr(section, name))
    return values


def _needs_a_secret(model: type[Section]) -> bool:
    return any(key.help.secret and key.info.is_required() for key in keys_of(model).values())


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        exported = value.for_export()
        return plain(exported, type(exported))
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


# By its type alone: the value was checked where it was written, and what it names is there and not here.
@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def built(model: type[S], values: Mapping[str, Any]) -> S:
    """Return the section of which `plain` made these values. Raises ValueError where they are no such section's."""
    keys = keys_of(model)
    if not isinstance(values, Mapping) or values.keys() - keys.keys():
        raise ValueError(f"not the keys of {model.__name__}")
    found: dict[str, Any] = {}
    for name, key in keys.items():
        if name not in values:
            if key.info.is_required():
                raise ValueError(f"no {name} in {model.__name__}")
            found[name] = key.info.get_default(call_default_factory=True, validated_data=found)
        elif key.section is None or values[name] is None:
            found[name] = _adapter(cast(Any, key.info.annotation)).validate_python(values[name])
        elif key.many:
            found[name] = tuple(built(key.section, item) for item in values[name])
        else:
            found[name] = built(key.section, values[name])
    return model.model_construct({*values}, **found)


def whole_numbers(value: Any) -> Any:
    """Return values with their numbers as they were: a stack's outputs have none but floating ones."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
