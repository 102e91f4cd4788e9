"""Sections of the stack config: the base class, and functions that define keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from components.settings.problems import KeyHelp, Report, child_path


class Section(BaseModel):
    """A mapping in the stack config. It rejects unknown keys and is immutable.

    absent   remedies for keys that similar sections have and this one cannot have
    """

    absent: ClassVar[Mapping[str, str]] = {}
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def for_export(self) -> Self:
        """Return the section for another stack, whose program may run on another machine."""
        return self


def key(
    description: str,
    *,
    wants: str = "a mapping",
    breaks: str = "none of its keys can be read",
    fix: str = "write KEY: VALUE pairs",
    secret: bool = False,
    default_text: str = "none",
    **field: Any,
) -> Any:
    """Return a key of a section, with its help (see KeyHelp) and pydantic's Field arguments.

    The key is required unless `field` has a default.
    """
    info = Field(description=description, **field)
    info.metadata.append(KeyHelp(wants, breaks, fix, secret, default_text))
    return info


def named(description: str, *, breaks: str, fix: str, **field: Any) -> Any:
    """Return a key that holds a name."""
    wants = "a name of at most 63 lowercase letters, digits and hyphens"
    return key(description, wants=wants, breaks=breaks, fix=fix, **field)


def yes_no(description: str, default: bool | None, default_text: str = "none") -> Any:
    """Return a key that holds true or false."""
    breaks, fix = "tailrack would not know which one you want", "write true or false without quotes"
    return key(description, wants="true or false", breaks=breaks, fix=fix, default_text=default_text, default=default)


def number(description: str, least: int, most: int, *, breaks: str, default: int | None, fix: str = "") -> Any:
    """Return a key that holds a whole number."""
    wants = f"a whole number from {least} to {most}"
    fix = fix or f"write {least} or more"
    return key(description, wants=wants, breaks=breaks, fix=fix, ge=least, le=most, default=default)


def size(description: str, *, breaks: str, **field: Any) -> Any:
    """Return a key that holds a size in bytes."""
    fix = "write digits and one of K, M, G (powers of 1024)"
    return key(description, wants="a size in bytes such as 64K, 4M or 8G", breaks=breaks, fix=fix, **field)


def secret_text(description: str, *, breaks: str, command: str) -> Any:
    """Return a key that may hold a secret on one line; `command` sets it."""
    described = f"{description}; a Pulumi secret (`{command}`)"
    return key(described, wants="a text on one line", breaks=breaks, fix=f"run: {command}", secret=True, default=None)


@dataclass(frozen=True)
class Key:
    """A key, for the reader and the reference."""

    info: FieldInfo
    help: KeyHelp
    section: type[Section] | None  # the model of its mapping, or of each mapping in its list
    many: bool  # holds a list of mappings


@cache
def keys_of(model: type[Section]) -> Mapping[str, Key]:
    """Return the keys of a section by name, in order."""
    return {name: _key(info) for name, info in model.model_fields.items()}


def _key(info: FieldInfo) -> Key:
    annotation: Any = info.annotation
    many = get_origin(annotation) is tuple
    # For an optional section, `Model | None`, this finds the model.
    items = [
        item for item in get_args(annotation) or (annotation,) if isinstance(item, type) and issubclass(item, Section)
    ]
    section = items[0] if items else None
    key_help = next(item for item in info.metadata if isinstance(item, KeyHelp))
    return Key(info, key_help, section, many and section is not None)


def located(section: Section, path: str) -> Iterator[tuple[int, str]]:
    """Yield the paths of a section and of all sections in it, for `Report.paths`."""
    yield id(section), path
    for name, key in keys_of(type(section)).items():
        value = getattr(section, name) if key.section else None
        if isinstance(value, Section):
            yield from located(value, child_path(path, name))
        for index, item in enumerate(value or () if key.many else ()):
            yield from located(item, child_path(child_path(path, name), index))


def check_secret(section: Section, name: str, breaks: str, fix: str, report: Report) -> None:
    """Report a secret that is plain text in the config."""
    if name in section.model_fields_set and not report.hides(path := report.at(section, name)):
        report.add(path, "[secret] is plain text in the config", breaks, fix)
