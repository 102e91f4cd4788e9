"""Read a YAML file strictly. An error is one sentence with the line, the problem and the remedy."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any, NoReturn

import yaml

from components.settings.problems import shown

LARGEST = 16 * 2**20  # bytes of a file
MOST_VALUES = 1_000_000  # of a file, with each repetition by an alias; the largest site has fewer
DEEPEST = 50  # nesting of lists and mappings; libyaml has no limit and would overflow the stack

_TAG = "tag:yaml.org,2002:"
_KINDS = {"str": "a text", "int": "a number", "float": "a number", "bool": "a truth value", "null": "nothing"}
_KINDS |= {"timestamp": "a date", "map": "a mapping", "seq": "a list", "merge": "'<<'"}
# A value of these forms is the same in YAML 1.1 (PyYAML), in YAML 1.2 and for the Pulumi CLI. Longer numbers would lose
# digits.
_CERTAIN = {
    "null": re.compile(r"(~|[Nn]ull|NULL)?"),
    "bool": re.compile(r"[Tt]rue|TRUE|[Ff]alse|FALSE"),
    "int": re.compile(r"(?=.{1,18}\Z)[-+]?(0|[1-9][0-9]*)"),
    "float": re.compile(r"(?=.{1,18}\Z)[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]{1,2})?"),
}
_DIGITS = "write a number with all its digits, at most 18 and no 0 before them, or "
# Texts in YAML 1.1 that other readers take for numbers: 0o17, 08, which is valid in neither notation, and 1e3.
_NUMBER = re.compile(r"[-+]?(0(o[0-7_]+|[0-9_]+)|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)")
# libyaml, if PyYAML has it, is ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FileError(Exception):
    """A file that cannot be used. The message is one sentence with its name, the line and the remedy."""


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a file; an empty file is an empty mapping.

    Raises FileError if the file cannot be read, contains something else, or has a duplicate key.
    """
    try:
        content = plain_file(path)
        text = content.decode()
    except OSError as error:
        raise FileError(f"{path.name} cannot be read: {error.strerror}; check that you own the file") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"line {line} contains bytes that are not UTF-8"
        raise FileError(f"{path.name} cannot be read: {problem}; save the file as UTF-8") from None
    try:
        _check_size(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        place = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem, _, fix = str(error.problem).partition("; ")
        if not fix:  # PyYAML's own message
            begin = error.context_mark.line + 1 if error.context_mark else ""
            problem = f"this is not YAML: {problem}" + f" ({error.context} from line {begin})" * bool(begin)
            fix = "correct the indentation, a colon or a quote in this line or the one before it"
        raise FileError(f"{path.name}{place}: {problem}; {fix}") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow; this error has no line
        raise FileError(f"{path.name} cannot be read: {' '.join(str(error).split())}; remove it") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FileError(
            f"{path.name} is {describe_type(value)}, not a mapping; write KEY: VALUE pairs, as in an example"
        )
    return value


def inside(base_dir: Path, name: str) -> Path:
    """Return the path of a file that a config names; a relative one starts at `base_dir`."""
    try:
        return base_dir / Path(name).expanduser()
    except RuntimeError:  # ~name of an unknown user
        return base_dir / name


def plain_file(path: Path) -> bytes:
    """Return a file's content. FileError if it is too large, a pipe or a device; OSError if reading fails."""
    info = path.stat()
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):  # reading a folder raises an OSError
        raise FileError(f"{path.name} cannot be read: it is not a regular file; write the path of your own file")
    if info.st_size > LARGEST:
        raise FileError(f"{path.name} cannot be read: it has more than {LARGEST} bytes; write the path of another file")
    content = path.read_bytes()
    if content and not info.st_size:  # a file of /proc, such as a process's environment
        raise FileError(f"{path.name} cannot be read: the kernel creates it; write the path of your own file")
    return content


def describe_type(value: object) -> str:
    """Return a value's type as text, without the value."""
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a truth value"}
    names |= {int: "a number", float: "a number"}
    return names.get(type(value), "nothing" if value is None else "a date")


def _fail(mark: Any, problem: str, fix: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=f"{problem}; {fix}", problem_mark=mark)


def _check_size(text: str) -> None:
    """Reject deep nesting and too many values, before any value is created.

    A value counts each time that an alias repeats it: ten lines of ten aliases are ten billion values.
    """
    open_: list[tuple[str | None, int]] = []  # for each open collection: its anchor, and the count before it
    sizes: dict[str, int] = {}
    count = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
            if len(open_) > DEEPEST:
                problem = f"lists and mappings are nested more than {DEEPEST} deep"
                _fail(event.start_mark, problem, "no key of a stack's config needs that; remove some")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, count_before = open_.pop()
            if anchor is not None:
                sizes[anchor] = count - count_before
        elif isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
        if count > MOST_VALUES:
            problem = f"there are more than {MOST_VALUES:,} values, counting each repetition by an alias (*)"
            _fail(event.start_mark, problem, "no stack's config needs that many; write fewer")


def _refuse_ambiguous(name: str, node: yaml.Node) -> None:
    """Reject a value that the Pulumi CLI, this program or a person could read differently.

    name   the value's name for messages
    """
    kind, text = node.tag.removeprefix(_TAG), node.value
    if kind in ("int", "float") and ":" in text:  # base 60, such as 12:30:00
        kind, node.tag = "str", f"{_TAG}str"  # as for Pulumi's CLI
    if kind not in (_KINDS if isinstance(node, yaml.ScalarNode) else ("map", "seq")):
        problem = f"{name} has the tag {shown(node.tag.replace(_TAG, '!!'))}, which no key accepts"
        _fail(node.start_mark, problem, "write the text itself, or the list or mapping without the tag")
    if not isinstance(node, yaml.ScalarNode):
        return
    is_number = not node.style and _NUMBER.fullmatch(text)
    certain = not is_number if kind == "str" else kind in _CERTAIN and bool(_CERTAIN[kind].fullmatch(text))
    if not certain:
        fix = {"bool": "write true or false, or ", "timestamp": ""}.get(kind, _DIGITS)
        problem = f"{name} is {shown(text)}, {_KINDS[kind]} to some readers of YAML and not to others"
        _fail(node.start_mark, problem, f"{fix}put it in quotes if it is a text")


class _Loader(_LOADER):  # type: ignore[valid-type,misc]
    """Like `yaml.safe_load`, but it rejects keys that are not text, and duplicate keys."""

    def construct_document(self, node: yaml.Node) -> Any:
        _refuse_ambiguous("the file", node)
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            kind, line = _KINDS.get(key.tag.removeprefix(_TAG), key.tag), key.start_mark.line + 1
            if kind not in ("a text", "'<<'") or not isinstance(key, yaml.ScalarNode):
                fix = "put it in quotes, or correct the key"
                _fail(key.start_mark, f"a key is {kind}, not a text", fix)
            if (kind, key.value) in lines:
                problem = f"the key {shown(key.value)} occurs a second time (first in line {lines[kind, key.value]})"
                _fail(key.start_mark, problem, "keep one of the two")
            lines[kind, key.value] = line
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            _refuse_ambiguous(shown(key.value), value)
        return dict(super().construct_mapping(node, deep))

    def construct_sequence(self, node: yaml.Node, deep: bool = False) -> list[Any]:
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            _refuse_ambiguous("an item of a list", item)
        return list(super().construct_sequence(node, deep))

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # Deep construction completes a collection before it is used, so that none can contain itself.
        return super().construct_object(node, deep=True)
