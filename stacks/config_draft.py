"""Reads the config leniently: reports what is wrong field by field, keeps all that can be read.

Pydantic refuses a whole model for one bad field; the checks that compare values (`config_checks`) must still see
the others, so that one run reports everything. A `Draft` is a mapping of the config as far as it can be read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from stacks.config_fields import SITE_KINDS, AnySite, Section, Site
from stacks.config_problems import MASK, Report, Says, below, shown


@dataclass(frozen=True)
class Draft:
    """One mapping: `raw` as written, `values` of the fields that hold, `lists` of its lists of mappings."""

    path: str
    raw: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    lists: Mapping[str, tuple[Draft, ...]] = field(default_factory=dict)
    sections: Mapping[str, Draft] = field(default_factory=dict)

    def at(self, key: str) -> str:
        """The path of one of its keys."""
        return below(self.path, key)

    def text(self, key: str) -> str | None:
        """The text at `key`, even one that its field refuses; None where there is no text."""
        value = self.values.get(key, self.raw.get(key))
        return value if isinstance(value, str) else None

    def whole(self, key: str) -> int | None:
        """The whole number at `key`, even one that its field refuses; None where there is none."""
        value = self.values.get(key, self.raw.get(key))
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def items(self, key: str) -> tuple[Draft, ...]:
        """The mappings in the list at `key`."""
        return self.lists.get(key, ())

    def section(self, key: str) -> Draft:
        """The mapping at `key`; an empty one where there is none."""
        return self.sections.get(key, Draft(self.at(key)))


def without_nulls(value: object, depth: int = 8) -> object:
    """The value with every null in a mapping taken for a key left out, as YAML's `key:` means it."""
    if depth and isinstance(value, Mapping):
        return {key: without_nulls(item, depth - 1) for key, item in value.items() if item is not None}
    if depth and isinstance(value, list | tuple):
        return [without_nulls(item, depth - 1) for item in value]
    return value


def meant(key: str, known: Iterable[str]) -> str:
    """The remedy for an unknown word: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"write one of: {', '.join(names)}"


def says(model: type[Section], name: str) -> Says:
    """What the field says about itself."""
    for item in model.model_fields[name].metadata:
        if isinstance(item, Says):
            return item
    about = model.model_fields[name].description or name
    return Says(about, "the stack cannot be built without it", "see docs/config.md")


@lru_cache
def _adapter(model: type[Section], name: str, shallow: bool) -> TypeAdapter[object]:
    info = model.model_fields[name]
    annotation: Any = tuple[Any, ...] if shallow else info.annotation
    return TypeAdapter(Annotated[(annotation, *info.metadata)] if info.metadata else annotation)


def _nested(model: type[Section], name: str) -> tuple[type[Section] | None, bool]:
    """The model that a field holds, if any, and whether it holds a list of them. A list of sites gives Site."""
    annotation = model.model_fields[name].annotation
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation, False
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        if item is AnySite:
            return Site, True
        if isinstance(item, type) and issubclass(item, Section):
            return item, True
    return None, False


class Reader:
    """Reads raw values into drafts and reports each field that does not hold."""

    def __init__(self, report: Report, base_dir: Path) -> None:
        self._report = report
        self._context = {"base_dir": base_dir}

    def section(self, model: type[Section], raw: object, path: str, unread: frozenset[str] = frozenset()) -> Draft:
        """A mapping read as `model`; keys in `unread` are let pass unread."""
        if not isinstance(raw, Mapping):
            names = ", ".join(model.model_fields)
            what = f"{self._report.value(path, raw)} is not a mapping"
            self._report.add(path, what, "none of its keys can be read", f"write KEY: VALUE pairs of {names}")
            return Draft(path)
        fields = model.model_fields
        for key in raw:
            if key not in fields and key not in unread:
                self._unknown(model, str(key), below(path, str(key)))
        values: dict[str, object] = {}
        lists: dict[str, tuple[Draft, ...]] = {}
        sections: dict[str, Draft] = {}
        for name, info in fields.items():
            if name not in raw:
                if info.is_required():
                    words = says(model, name)
                    self._report.add(below(path, name), "missing", words.breaks, words.fix)
                continue
            at = below(path, name)
            inner, many = _nested(model, name)
            if inner is None:
                self._field(model, name, raw[name], at, values)
            elif not many:
                sections[name] = self.section(inner, raw[name], at)
            elif self._field(model, name, raw[name], at, {}, shallow=True):
                lists[name] = self._items(inner, raw[name], at)
        return Draft(path, raw, values, lists, sections)

    def _items(self, model: type[Section], raw: object, path: str) -> tuple[Draft, ...]:
        items = raw if isinstance(raw, list) else []
        read = self._site if model is Site else lambda item, at: self.section(model, item, at)
        return tuple(read(item, below(path, index)) for index, item in enumerate(items))

    def _site(self, raw: object, path: str) -> Draft:
        kind = raw.get("kind") if isinstance(raw, Mapping) else None
        if isinstance(kind, str) and kind in SITE_KINDS:
            return self.section(SITE_KINDS[kind], raw, path)
        if isinstance(raw, Mapping):
            at = below(path, "kind")
            what = f"{self._report.value(at, kind)} is not a kind of site" if "kind" in raw else "missing"
            fix = "write lab (containers on this machine) or hosts (your own machines by SSH)"
            self._report.add(at, what, "nobody knows where its nodes come from", fix)
        known = frozenset(name for model in SITE_KINDS.values() for name in model.model_fields)
        return self.section(Site, raw, path, unread=known)

    def _unknown(self, model: type[Section], key: str, path: str) -> None:
        remedy = meant(key, model.model_fields)
        for kind, other in SITE_KINDS.items():
            if issubclass(model, Site) and key in other.model_fields:
                remedy = f"it belongs to a site of kind {kind}"
        self._report.add(path, "unknown key", "it would change nothing, without a word", remedy)

    def _field(
        self,
        model: type[Section],
        name: str,
        raw: object,
        path: str,
        values: dict[str, object],
        shallow: bool = False,
    ) -> bool:
        """Reads one field into `values`; False when it was refused."""
        try:
            values[name] = _adapter(model, name, shallow).validate_python(raw, context=self._context)
        except ValidationError as error:
            details = error.errors(include_url=False)
        else:
            return True
        for detail in details:
            self._refused(says(model, name), detail, path)
        return False

    def _refused(self, words: Says, detail: ErrorDetails, path: str) -> None:
        inside = [part for part in detail["loc"] if part != "[key]"]
        for part in inside:
            path = below(path, part)
        context = detail.get("ctx", {})
        breaks, fix = words.breaks, words.fix
        hidden = words.secret or self._report.hides(path)
        if detail["type"] == "refused" and (words.secret or not hidden):
            what = context["what"]
            breaks, fix = context["breaks"] or breaks, context["fix"] or fix
        elif detail["type"] == "string_too_long":
            what = f"is longer than {context['max_length']} characters"
        else:
            what = f"does not fit in {words.wants}" if inside else f"is not {words.wants}"
        self._report.add(path, f"{MASK if hidden else shown(detail['input'])} {what}", breaks, fix)
