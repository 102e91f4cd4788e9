"""A mapping of the stack config as far as it can be read.

Pydantic refuses a whole model for one bad field; the checks that compare values must still see the others, so that
one run reports everything.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.settings.problems import Report, below, shown, word
from components.settings.section import Section, keys_of

_LONGEST_NAME, _MOST_NAMES = 100, 100  # more would be no help, and take long to compare


@dataclass(frozen=True, slots=True)
class Draft:
    """One mapping: `raw` as written, `values` of the fields that hold, with drafts for mappings and lists of them."""

    path: str
    model: type[Section]
    raw: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)

    def at(self, key: str) -> str:
        """The path of one of its keys."""
        return below(self.path, key)

    def value(self, key: str) -> object:
        """The value at `key`, its default where it is left out; None where it was refused."""
        return self.values.get(key) if key in self.raw else keys_of(self.model)[key].info.default

    def text(self, key: str) -> str | None:
        """The text at `key`, even one that its field refuses; None where there is no text."""
        return value if isinstance(value := self._written(key), str) else None

    def whole(self, key: str) -> int | None:
        """The whole number at `key`, even one that its field refuses; None where there is none."""
        value = self._written(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _written(self, key: str) -> object:
        read = self.value(key)
        return self.raw.get(key) if read is None else read

    def items(self, key: str) -> tuple[Draft, ...]:
        """The mappings in the list at `key`."""
        return found if isinstance(found := self.values.get(key), tuple) else ()

    def section(self, key: str) -> Draft:
        """The mapping at `key`; an empty one where there is none."""
        found = self.values.get(key)
        if isinstance(found, Draft):
            return found
        own = keys_of(self.model).get(key)
        return Draft(self.at(key), (own and own.section) or Section)

    def built(self) -> Any:
        """The section itself. Only for a draft without a problem: its values are taken as they were read."""
        fields: dict[str, Any] = {}
        for name, key in keys_of(self.model).items():
            factory: Any = key.info.default_factory  # pydantic would look at its signature again for each mapping
            if name in self.values:
                fields[name] = _built(self.values[name])
            else:
                fields[name] = factory(fields) if factory else key.info.get_default()
        return self.model.model_construct({*self.values}, **fields)


def _built(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_built, value))
    return value.built() if isinstance(value, Draft) else value


def check_hidden(section: Draft, name: str, breaks: str, fix: str, report: Report) -> None:
    """Report a secret of a section that is plain text in the config."""
    if name in section.raw and not report.hides(at := section.at(name)):
        report.add(at, "[secret] is plain text in the config", breaks, fix)


def meant(key: str, known: Collection[str]) -> str:
    """The remedy for an unknown word: the nearest known one, or all of them."""
    if len(known) > _MOST_NAMES:
        return f"write one of the {len(known)} that there are"
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1) if len(key) <= _LONGEST_NAME else []
    return f"did you mean {shown(near[0])}?" if near else f"write one of: {', '.join(map(word, names))}"
