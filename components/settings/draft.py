"""A mapping of the stack config, as far as it can be read.

Pydantic rejects a whole model for one bad field. Checks that compare fields use a draft instead, so that one run
reports every problem.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.settings.problems import Report, child_path, show_key, shown
from components.settings.section import Section, keys_of

_LONGEST_NAME, _MOST_NAMES = 100, 100  # longer names and lists make suggestions slow and useless


@dataclass(frozen=True, slots=True)
class Draft:
    """One mapping: `raw` as written, and `values` of the valid fields, where mappings and lists of them are drafts."""

    path: str
    model: type[Section]
    raw: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)

    def path_of(self, key: str) -> str:
        """Return the path of a key of this mapping."""
        return child_path(self.path, key)

    def value(self, key: str) -> object:
        """Return the value at `key`, or its default; None if the field rejected the value."""
        return self.values.get(key) if key in self.raw else keys_of(self.model)[key].info.default

    def text(self, key: str) -> str | None:
        """Return the text at `key`, even if the field rejected it; None if it is no text."""
        return value if isinstance(value := self._read_or_raw(key), str) else None

    def whole(self, key: str) -> int | None:
        """Return the whole number at `key`, even if the field rejected it; None if it is no whole number."""
        value = self._read_or_raw(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _read_or_raw(self, key: str) -> object:
        value = self.value(key)
        return self.raw.get(key) if value is None else value

    def items(self, key: str) -> tuple[Draft, ...]:
        """Return the mappings in the list at `key`."""
        return items if isinstance(items := self.values.get(key), tuple) else ()

    def section(self, key: str) -> Draft:
        """Return the mapping at `key`, or an empty one."""
        value = self.values.get(key)
        if isinstance(value, Draft):
            return value
        definition = keys_of(self.model).get(key)
        return Draft(self.path_of(key), (definition and definition.section) or Section)

    def build(self) -> Any:
        """Return the section. Only for a draft without problems, because it does not check values again."""
        fields: dict[str, Any] = {}
        for name, key in keys_of(self.model).items():
            factory: Any = key.info.default_factory  # pydantic would inspect its signature for each mapping
            if name in self.values:
                fields[name] = _build(self.values[name])
            else:
                fields[name] = factory(fields) if factory else key.info.get_default()
        return self.model.model_construct({*self.values}, **fields)


def _build(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_build, value))
    return value.build() if isinstance(value, Draft) else value


def check_secret(section: Draft, name: str, breaks: str, fix: str, report: Report) -> None:
    """Report a secret that is plain text in the config."""
    if name in section.raw and not report.hides(path := section.path_of(name)):
        report.add(path, "[secret] is plain text in the config", breaks, fix)


def suggest(key: str, valid: Collection[str]) -> str:
    """Return a remedy for an unknown key or name: the most similar valid one, or all valid ones."""
    if len(valid) > _MOST_NAMES:
        return f"write one of the {len(valid)} valid names"
    names = sorted(valid)
    similar = difflib.get_close_matches(key, names, n=1) if len(key) <= _LONGEST_NAME else []
    return f"did you mean {shown(similar[0])}?" if similar else f"write one of: {', '.join(map(show_key, names))}"
