"""Convert a section to plain data for another stack, without secrets, and back.

The other stack may be in another checkout with other keys. `shape` is a digest of the keys and their types, so a
stack rejects such a section instead of misreading it.
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
    """Return a digest of the keys of a section and their types, as 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(sorted(_kinds(model, "")), sort_keys=True).encode()).hexdigest()[:16]


def _kinds(model: type[Section], path: str) -> Iterator[tuple[str, str]]:
    for name, key in keys_of(model).items():
        key_path = f"{path}.{name}"
        if key.section is not None:
            yield key_path, "list" if key.many else "mapping"
            yield from _kinds(key.section, key_path)
        else:
            # Remove the memory addresses of validators, which differ in each process.
            yield key_path, re.sub(r" at 0x[0-9a-f]+", "", str(key.info.annotation))


def to_plain(section: Section, model: type[Section]) -> dict[str, Any]:
    """Return the values of a section by key, as JSON types, without secrets and lists of items that need a secret.

    model   the model whose keys to export; the section's class may have more
    """
    values = {}
    for name, key in keys_of(model).items():
        if key.secret or (key.section is not None and key.many and _needs_a_secret(key.section)):
            continue
        values[name] = _plain(getattr(section, name))
    return values


def _needs_a_secret(model: type[Section]) -> bool:
    return any(key.secret and key.info.is_required() for key in keys_of(model).values())


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        exported = value.for_export()
        return to_plain(exported, type(exported))
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


# Check types only: another stack has checked the values, and the paths in them exist only on its machine.
@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def from_plain(model: type[S], values: Mapping[str, Any]) -> S:
    """Return the section that `to_plain` converted. Raises ValueError if the values do not fit the model."""
    keys = keys_of(model)
    if not isinstance(values, Mapping) or values.keys() - keys.keys():
        raise ValueError(f"not the keys of {model.__name__}")
    fields: dict[str, Any] = {}
    for name, key in keys.items():
        if name not in values:
            if key.info.is_required():
                raise ValueError(f"no {name} in {model.__name__}")
            fields[name] = key.info.get_default(call_default_factory=True, validated_data=fields)
        elif key.section is None or values[name] is None:
            fields[name] = _adapter(cast(Any, key.info.annotation)).validate_python(values[name])
        elif key.many:
            fields[name] = tuple(from_plain(key.section, item) for item in values[name])
        else:
            fields[name] = from_plain(key.section, values[name])
    return model.model_construct({*values}, **fields)


def whole_numbers(value: Any) -> Any:
    """Return values with integers as int: stack outputs have only floats."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
