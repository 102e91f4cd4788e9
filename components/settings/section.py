"""A section of the stack config as a model: its keys, and what they say when they are missing or wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo

from components.settings.problems import KeyHelp

_SECTION = "a mapping; none of its keys can be read; write KEY: VALUE pairs"


class Section(BaseModel):
    """A mapping in the stack config: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def for_export(self) -> Self:
        """Return the section as another stack is to have it, whose program may run on another machine."""
        return self


def key(description: str, words: str = _SECTION, *, secret: bool = False, otherwise: str = "none", **how: Any) -> Any:
    """Return a key of a section: its description, its `wants; breaks; fix` (see KeyHelp), and Field arguments.

    Required where no default is given.
    """
    info = Field(description=description, **how)
    wants, breaks, fix = words.split("; ", 2)
    info.metadata.append(KeyHelp(wants, breaks, fix, secret, otherwise))
    return info


def named(description: str, words: str, **how: Any) -> Any:
    """A key that holds a name; its words are `breaks; fix`."""
    return key(description, f"a name of at most 63 lowercase letters, digits and hyphens; {words}", **how)


def yes_no(description: str, default: bool | None, otherwise: str = "none") -> Any:
    """A key that holds true or false."""
    words = "true or false; it would be left open; write true or false without quotes"
    return key(description, words, otherwise=otherwise, default=default)


def number(description: str, least: int, most: int, breaks: str, default: int | None) -> Any:
    """A key that holds a whole number."""
    words = f"a whole number from {least} to {most}; {breaks}; write {least} or more"
    return key(description, words, ge=least, le=most, default=default)


def size(description: str, breaks: str, **how: Any) -> Any:
    """A key that holds a size in bytes."""
    fix = "write digits and one of K, M, G (powers of 1024)"
    return key(description, f"a size in bytes such as 64K, 4M or 8G; {breaks}; {fix}", **how)


def secret_text(description: str, breaks: str, command: str) -> Any:
    """A key that may hold a secret on one line, and the command that sets it."""
    words = f"a text on one line; {breaks}; run: {command}"
    return key(f"{description}; a Pulumi secret (`{command}`)", words, secret=True, default=None)


@dataclass(frozen=True)
class Key:
    """A key as the reader and the reference see it."""

    info: FieldInfo
    says: KeyHelp
    section: type[Section] | None  # the model of the mapping that it holds, or of each mapping in its list
    many: bool  # holds a list of mappings
    adapter: TypeAdapter[Any]  # checks the value; of a list of mappings only that it is a list, and its length


@cache
def keys_of(model: type[Section]) -> Mapping[str, Key]:
    """The keys of a section by name, in order."""
    return {name: _key(info) for name, info in model.model_fields.items()}


def _key(info: FieldInfo) -> Key:
    annotation: Any = info.annotation
    many = get_origin(annotation) is tuple
    # Of a section that may be left out, `Model | None`, the model.
    items = [
        item for item in get_args(annotation) or (annotation,) if isinstance(item, type) and issubclass(item, Section)
    ]
    section = items[0] if items else None
    many = many and section is not None
    kind: Any = tuple[Any, ...] if many else annotation
    checked: Any = Annotated[(kind, *info.metadata)]
    words = next(each for each in info.metadata if isinstance(each, KeyHelp))
    return Key(info, words, section, many, TypeAdapter(checked))
