"""A YAML file, read strictly and in linear time: what is wrong with it is one sentence with the line and the remedy."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from components.settings.problems import shown

DEEPEST = 50  # lists and mappings in one another
MOST_VALUES = 5_000_000  # what aliases stand for is counted each time
MOST_BITS = 1024  # of a whole number

_TAG = "tag:yaml.org,2002:"
_KINDS = {"str": "text", "int": "number", "float": "number", "bool": "truth value", "null": "null", "timestamp": "date"}
_MERGE = object()  # the key `<<`
_UNREADABLE = object()
# libyaml, where PyYAML has it, is ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FileError(Exception):
    """A file that cannot be used; one sentence with its name, the line and the remedy."""


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping that a file holds; an empty file is an empty one.

    Raises FileError for a file that cannot be read, holds something else, or says something twice.
    """
    try:
        content = plain_file(path)
        text = content.decode()
    except OSError as error:
        raise FileError(f"{path.name} cannot be read: {error.strerror}; see that it is a file of yours") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"line {line} has bytes that are not UTF-8"
        raise FileError(f"{path.name} cannot be read: {what}; save the file as UTF-8") from None
    builder = _Builder(path.name)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        builder.fail(error.problem_mark, f"this is not YAML: {error.problem}", "correct the line, or the one before it")
    except yaml.YAMLError as error:  # a character that YAML does not allow; it has no line
        raise FileError(f"{path.name} cannot be read: {' '.join(str(error).split())}; take it out") from None
    if builder.root is None:
        return {}
    if not isinstance(builder.root, dict):
        raise FileError(f"{path.name} is {told(builder.root)}, not a mapping; write KEY: VALUE pairs, as in an example")
    return builder.root


def plain_file(path: Path) -> bytes:
    """Return a file's content. FileError for a pipe or a device, which may have no end; OSError as in reading."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # a folder has an error of its own
        raise FileError(f"{path.name} cannot be read: it is no plain file; see that it is a file of yours")
    return path.read_bytes()


def told(value: object) -> str:
    """What a value is, in words; never the value."""
    words = {
        dict: "a mapping",
        list: "a list",
        str: "a text",
        bool: "a truth value",
        int: "a number",
        float: "a number",
    }
    return words.get(type(value), "nothing" if value is None else "a date")


class _Scalars(SafeConstructor, Resolver):
    """What a plain or quoted word stands for, as `yaml.safe_load` has it."""

    def __init__(self) -> None:
        SafeConstructor.__init__(self)
        Resolver.__init__(self)


@dataclass
class _Open:
    """A list or mapping whose end is still to come."""

    made: dict[str, Any] | list[Any]
    anchor: str | None
    lines: dict[object, int] = field(default_factory=dict)  # of the mapping's keys
    key: object = None  # the one whose value comes next
    merged: dict[str, Any] = field(default_factory=dict)
    size: int = 1


class _Builder:
    """Makes values of a parser's events, without recursion; `root` is the document's."""

    def __init__(self, name: str) -> None:
        self.root: Any = None
        self._name, self._scalars, self._documents = name, _Scalars(), 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # value and size; None while it is still open

    def fail(self, mark: Any, what: str, fix: str) -> NoReturn:
        """Raise the sentence."""
        line = "" if mark is None else f" line {mark.line + 1}:"
        raise FileError(f"{self._name}{line or ':'} {what}; {fix}")

    def take(self, event: yaml.Event) -> None:
        """Take the next event."""
        if isinstance(event, yaml.ScalarEvent):
            self._keep(event.anchor, value := self._scalar(event), 1)
            self._place(event.start_mark, value, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            made = {**done.merged, **done.made} if isinstance(done.made, dict) and done.merged else done.made
            self._keep(done.anchor, made, done.size)
            self._place(event.start_mark, made, done.size)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self.fail(event.start_mark, "a second document begins here", "keep one, without '---' after it")

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'map' if mapping else 'seq'}"):
            self.fail(event.start_mark, f"the tag {event.tag!r} has no meaning here", "take it out")
        if len(self._open) >= DEEPEST:
            what = f"lists and mappings are nested more than {DEEPEST} deep"
            self.fail(event.start_mark, what, "no key of a stack's config needs that; take them out")
        if self._wants_key():
            self.fail(event.start_mark, "a list or mapping stands where a key is wanted", "write a text as the key")
        self._keep(event.anchor, None, 0)
        self._open.append(_Open({} if mapping else [], event.anchor))

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            self.fail(event.start_mark, f"the alias *{event.anchor} has no anchor", "write the value itself")
        found = self._anchors[event.anchor]
        if found is None:
            self.fail(
                event.start_mark, f"the alias *{event.anchor} is within what it stands for", "write the value itself"
            )
        self._place(event.start_mark, *found)

    def _keep(self, anchor: str | None, value: object, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size) if size else None

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._scalars.resolve(  # type: ignore[no-untyped-call,unused-ignore]
                yaml.ScalarNode, event.value, event.implicit
            )
        kind = tag.removeprefix(_TAG)
        if kind == "str" or (kind in ("int", "float") and ":" in event.value):
            return event.value  # 12:30:00 is a text to Pulumi's CLI, and no number to the base of 60
        if kind in ("merge", "value"):  # the plain words << and =
            return _MERGE if kind == "merge" and self._wants_key() else event.value
        if kind not in _KINDS:
            self.fail(event.start_mark, f"the tag {tag!r} has no meaning here", "take it out")
        try:
            value = self._scalars.yaml_constructors[tag](self._scalars, yaml.ScalarNode(tag, event.value))
        except (ValueError, OverflowError, LookupError, AttributeError):  # the last two: `!!bool x`, `!!timestamp x`
            value = _UNREADABLE
        if value is _UNREADABLE or (isinstance(value, int) and value.bit_length() > MOST_BITS):
            what = f"a {_KINDS[kind]} of {len(event.value)} characters cannot be read"
            self.fail(event.start_mark, what, "correct it, or write it in quotes if it is meant as a text")
        return value

    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].made, dict) and self._open[-1].key is None

    def _place(self, mark: Any, value: Any, size: int) -> None:
        """Put a finished value where it belongs."""
        if not self._open:
            self.root = value
            return
        above = self._open[-1]
        above.size += size
        if above.size > MOST_VALUES:
            what = f"aliases make more than {MOST_VALUES} values of it"
            self.fail(mark, what, "write fewer of them")
        if isinstance(above.made, list):
            above.made.append(value)
        elif above.key is None:
            self._key(above, mark, value)
        elif above.key is _MERGE:
            for each in reversed(value if isinstance(value, list) else [value]):
                if not isinstance(each, dict):
                    self.fail(mark, f"'<<' merges a mapping, and this is {told(each)}", "write an alias of a mapping")
                above.merged |= each
            above.key = None
        else:
            above.made[str(above.key)] = value
            above.key = None

    def _key(self, above: _Open, mark: Any, value: Any) -> None:
        if value is not _MERGE and not isinstance(value, str):
            what = f"a key is {told(value)}, not a text"
            self.fail(mark, what, "write it in quotes, or write the key that was meant")
        if value in above.lines:
            word = "'<<'" if value is _MERGE else f"the key {shown(value)}"
            what = f"{word} is there a second time (first in line {above.lines[value]})"
            self.fail(mark, what, "keep one of the two")
        above.lines[value] = mark.line + 1
        above.key = value
