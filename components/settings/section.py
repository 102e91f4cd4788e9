"""Sections of the stack config, and the words of their keys in errors and in `make config-help`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

from components.settings.problems import Report, Stack, child_path, secret_command

_BOUNDS = {"ge": " from", "gt": " above", "le": " to"}  # fields of pydantic's metadata of numbers


@dataclass(frozen=True)
class Help:
    """Words of a type, in `Annotated`, for errors and `make config-help`."""

    wants: str = ""  # completes "is not ...", and is the type in the list of keys
    fix: str = ""  # the remedy
    breaks: str = ""  # the consequence of a wrong value, where it is a danger
    default_text: str = ""  # the default in the list of keys, if it is no plain value
    leaked: str = ""  # the remedy for a secret that others can read, before the one that replaces it


class KeyHelp(Help):
    """Words of a key, which come before those of its type."""


class Section(BaseModel):
    """A mapping in the stack config. It rejects unknown keys and is immutable."""

    # Remedies for keys that similar sections have and this one cannot have.
    absent: ClassVar[Mapping[str, str]] = {}
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)

    def for_export(self) -> Self:
        """Return the section for another stack, whose program may run on another machine."""
        return self

    def check(self, stack: Stack, report: Report) -> None:
        """Report conflicts of its values with each other and with the rest of the stack's config."""


def key(wants: str = "", fix: str = "", breaks: str = "", default_text: str = "", **field: Any) -> Any:
    """Return pydantic's Field with a KeyHelp. The text below a key in its class is its description."""
    info = Field(**field)
    info.metadata.append(KeyHelp(wants, fix, breaks, default_text))
    return info


@dataclass(frozen=True)
class Key:
    """A key, for the reader and the reference."""

    info: FieldInfo
    attribute: str  # its name in the section
    help: Help
    description: str
    secret: bool  # no message shows its value, and no other stack gets it
    # The models of its mapping, or of each mapping in its list, by the value of their discriminator: "" without one.
    sections: Mapping[str, type[Section]]
    discriminator: str  # the key that tells these models apart
    many: bool  # holds a list of mappings

    def remedy(self, path: str) -> str:
        """Return the remedy for the key at a path; for a secret, the command that sets it."""
        return self.help.fix or f"run: {secret_command(path)}"


@cache
def keys_of(model: type[Section]) -> Mapping[str, Key]:
    """Return the keys of a section by name, in order."""
    return {info.alias or name: _key(name, info) for name, info in model.model_fields.items()}


def _key(name: str, info: FieldInfo) -> Key:
    annotation: Any = info.annotation
    many = get_origin(annotation) is tuple
    # For an optional section, `Model | None`, this finds the model.
    bases, metadata = _parts(get_args(annotation)[0] if many else annotation, [])
    models = [base for base in bases if isinstance(base, type) and issubclass(base, Section)]
    by = next((item.discriminator for item in metadata if getattr(item, "discriminator", None)), "")
    sections = {tag: one for one in models for tag in (get_args(one.model_fields[by].annotation) if by else [by])}
    # A section without a list describes itself.
    text = info.description or next((one.__doc__ for one in models if not many), "")
    description, secret = " ".join((text or "").split()), _holds_a_secret(annotation)
    return Key(info, name, _words(name, info, secret), description, secret, sections, by, many and bool(models))


def _holds_a_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_holds_a_secret, get_args(annotation)))


def _words(name: str, info: FieldInfo, secret: bool) -> Help:
    """Return the help of a key. A secret's `fix` may be empty, for the command that sets it."""
    bases, metadata = _parts(info.annotation, info.metadata)
    own = next((item for item in info.metadata if isinstance(item, KeyHelp)), KeyHelp())
    of_type = next((item for item in reversed(metadata) if isinstance(item, Help) and item is not own), Help())
    wants, fix = _of_type(name, bases[0], metadata, info)
    some = " (at least one)" * any(getattr(item, "min_length", 0) for item in metadata if get_origin(bases[0]) is tuple)
    return Help(
        (own.wants or of_type.wants or wants) + some,
        own.fix or of_type.fix or ("" if secret else fix),
        own.breaks or of_type.breaks,
        own.default_text or of_type.default_text or "none",
        of_type.leaked or "change it at its provider",
    )


def _parts(annotation: Any, metadata: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the types of an annotation without None, and all metadata on the way to them."""
    found = [part for item in metadata for part in (item, *(item.metadata if isinstance(item, FieldInfo) else ()))]
    if get_origin(annotation) is Annotated:
        base, *more = get_args(annotation)
        bases, inner = _parts(base, more)
        return bases, found + inner
    if get_origin(annotation) in (Union, UnionType):
        parts = [_parts(item, []) for item in get_args(annotation) if item is not type(None)]
        return [base for bases, _ in parts for base in bases], found + [item for _, inner in parts for item in inner]
    return [annotation], found


def _of_type(name: str, base: Any, metadata: list[Any], info: FieldInfo) -> tuple[str, str]:
    """Return wants and fix as the type says them."""
    if base is bool:
        return "true or false", "write true or false without quotes"
    if get_origin(base) is Literal:
        *most, last = map(str, get_args(base))
        return f"{', '.join(most)} or {last}" if most else f"`{last}`", f"write {'one of them' if most else last}"
    if base in (int, float):
        found = {name: getattr(item, name) for item in metadata for name in _BOUNDS if hasattr(item, name)}
        words_of = {**_BOUNDS, "le": _BOUNDS["le"] if "ge" in found else ", at most"}
        bounds = [f"{word} {found[name]}" for name, word in words_of.items() if name in found]
        such = found.get("ge", 1) if info.is_required() or info.default is None else info.default
        text = f"a{' whole' * (base is int)} number{''.join(bounds)}"
        return text, f"write one such as {such}"
    if get_origin(base) is tuple:
        return f"a list of {name}", "write them in [ ]"
    if isinstance(base, type) and issubclass(base, BaseModel):
        return "a mapping", f"write KEY: VALUE pairs of {', '.join(base.model_fields)}"
    return "a text on one line", "write one"


def located(section: Section, path: str) -> Iterator[tuple[Section, str]]:
    """Yield a section and all sections in it, each with its path."""
    yield section, path
    for name, key in keys_of(type(section)).items():
        value = getattr(section, key.attribute) if key.sections else None
        if isinstance(value, Section):
            yield from located(value, child_path(path, name))
        for index, item in enumerate(value or () if key.many else ()):
            yield from located(item, child_path(child_path(path, name), index))
