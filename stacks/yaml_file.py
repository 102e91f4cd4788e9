"""A YAML file, read strictly: what is wrong with it is one sentence with the line and the remedy."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any, NoReturn

import yaml

from components.settings.problems import shown

LARGEST = 16 * 2**20  # bytes of a file
MOST_VALUES = 1_000_000  # of a file, each as often as an alias repeats it; a site of the most hosts has fewer
DEEPEST = 50  # lists and mappings in one another: libyaml goes as deep as it is led, until the stack ends

_TAG = "tag:yaml.org,2002:"
_KINDS = {"str": "a text", "int": "a number", "float": "a number", "bool": "a truth value", "null": "nothing"}
_KINDS |= {"timestamp": "a date", "map": "a mapping", "seq": "a list", "merge": "'<<'"}
# 017 and 0o17; and 08, which is neither. Numbers that YAML 1.1 reads as texts and YAML 1.2 as numbers: 1e3.
_BY_EIGHTS = re.compile(r"[-+]?0(o[0-7_]+|[0-9_]+)")
_BY_TENS = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MOST_DIGITS = 18  # are exact in 64 bits
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
    try:
        _check_size(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        where = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        what, _, fix = str(error.problem).partition("; ")
        if not fix:  # PyYAML's own words
            what, fix = f"this is not YAML: {what}", "correct the line, or the one before it"
        raise FileError(f"{path.name}{where}: {what}; {fix}") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow; it has no line
        raise FileError(f"{path.name} cannot be read: {' '.join(str(error).split())}; take it out") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FileError(f"{path.name} is {told(value)}, not a mapping; write KEY: VALUE pairs, as in an example")
    return value


def plain_file(path: Path) -> bytes:
    """Return a file's content. FileError for one too large, a pipe or a device; OSError as in reading."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):  # a folder has an error of its own
        raise FileError(f"{path.name} cannot be read: it is no plain file; see that it is a file of yours")
    if found.st_size > LARGEST:
        raise FileError(f"{path.name} cannot be read: it has more than {LARGEST} bytes; name the file that was meant")
    content = path.read_bytes()
    if content and not found.st_size:  # a file of /proc, such as a process's environment
        raise FileError(f"{path.name} cannot be read: the kernel makes its content; see that it is a file of yours")
    return content


def told(value: object) -> str:
    """What a value is, in words; never the value."""
    words = {dict: "a mapping", list: "a list", str: "a text", bool: "a truth value"}
    words |= {int: "a number", float: "a number"}
    return words.get(type(value), "nothing" if value is None else "a date")


def _fail(mark: Any, what: str, fix: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=f"{what}; {fix}", problem_mark=mark)


def _check_size(text: str) -> None:
    """Refuse lists and mappings that are nested too deep, and too many values, before any of them is made.

    A value that an alias names counts each time: ten lines of ten aliases are ten billion values.
    """
    open_: list[tuple[str | None, int]] = []  # of each collection around: its anchor, and the count before it
    sizes: dict[str, int] = {}
    count = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
            if len(open_) > DEEPEST:
                what = f"lists and mappings are nested more than {DEEPEST} deep"
                _fail(event.start_mark, what, "no key of a stack's config needs that; take them out")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
        if count > MOST_VALUES:
            what = f"there are more than {MOST_VALUES:,} values, those that an alias (*) repeats counted each time"
            _fail(event.start_mark, what, "no stack's config needs that many; write fewer")


def _refuse_doubtful(name: str, node: yaml.Node) -> None:
    """Refuse a value that the Pulumi CLI and this program, or a person, would read as something else each.

    name   what the value is of, to people
    """
    if not isinstance(node, yaml.ScalarNode):
        return
    kind, text = node.tag.removeprefix(_TAG), node.value
    plain, is_number = not node.style, kind in ("int", "float") and ":" not in node.value
    quoted = "or write it in quotes if it is meant as a text"
    if kind == "binary":
        _fail(node.start_mark, f"{name} has the tag !!binary, which no key takes", "write the text itself")
    if kind == "timestamp":
        what = f"{name} is {shown(text)}, a date, which the Pulumi CLI writes in another way than it is here"
        _fail(node.start_mark, what, "write it in quotes")
    if kind == "bool" and text.lower() not in ("true", "false"):
        what = f"{name} is {shown(text)}, a truth value to some readers of YAML and a text to others"
        _fail(node.start_mark, what, f"write true or false, {quoted}")
    if plain and (is_number or kind == "str") and _BY_EIGHTS.fullmatch(text):
        what = f"{name} is {shown(text)}, which begins with a 0: some readers of YAML count it by eights"
        _fail(node.start_mark, what, f"write the number that was meant without the 0, {quoted}")
    if plain and kind == "str" and _BY_TENS.fullmatch(text):
        what = f"{name} is {shown(text)}, a number to some readers of YAML and a text to others"
        _fail(node.start_mark, what, f"write the number with all its digits, {quoted}")
    if plain and is_number and len(text) > _MOST_DIGITS:
        what = f"{name} is a number of {len(text)} characters, of which some readers of YAML keep the first ones"
        _fail(node.start_mark, what, f"correct it, {quoted}")


class _Loader(_LOADER):  # type: ignore[valid-type,misc]
    """As `yaml.safe_load`, but it refuses what that takes in silence: a key that is no text, or is there twice."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            kind, line = _KINDS.get(key.tag.removeprefix(_TAG), key.tag), key.start_mark.line + 1
            if kind not in ("a text", "'<<'") or not isinstance(key, yaml.ScalarNode):
                fix = "write it in quotes, or write the key that was meant"
                _fail(key.start_mark, f"a key is {kind}, not a text", fix)
            if (kind, key.value) in lines:
                what = f"the key {shown(key.value)} is there a second time (first in line {lines[kind, key.value]})"
                _fail(key.start_mark, what, "keep one of the two")
            lines[kind, key.value] = line
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            _refuse_doubtful(shown(key.value), value)
        return dict(super().construct_mapping(node, deep))

    def construct_sequence(self, node: yaml.Node, deep: bool = False) -> list[Any]:
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            _refuse_doubtful("an item of a list", item)
        return list(super().construct_sequence(node, deep))

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind in ("int", "float") and ":" in node.value:
            node.tag = f"{_TAG}str"  # 12:30:00 is a text to Pulumi's CLI, and no number to the base of 60
        try:
            # Deep: a collection is whole when it is there, so that none can be within itself.
            return super().construct_object(node, deep=True)
        except (ValueError, OverflowError, LookupError, AttributeError):  # the last two: `!!bool x`, `!!timestamp x`
            what = f"{_KINDS[kind]} of {len(node.value)} characters cannot be read"
            _fail(node.start_mark, what, "correct it, or write it in quotes if it is meant as a text")
