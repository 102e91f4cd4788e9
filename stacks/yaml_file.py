"""Read a YAML file strictly. Each error is one sentence with the line, the problem and the remedy."""

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from components.settings.problems import shown

# Bytes, values (repeated ones too) and nesting of a file, and reported mistakes. libyaml would overflow the stack.
LARGEST, MOST_VALUES, DEEPEST, _MOST_MISTAKES = 16 * 2**20, 1_000_000, 50, 20
# Names of YAML 1.1's tags and of Python's types.
_KINDS = {"str": "a text", "int": "a number", "float": "a number", "bool": "a truth value", "timestamp": "a date"}
_KINDS |= {"null": "nothing", "NoneType": "nothing", "merge": "'<<'", "dict": "a mapping", "list": "a list"}
_KINDS |= {"map": "a mapping", "seq": "a list"}
# Values that are the same in YAML 1.1 (PyYAML), in YAML 1.2 and for the Pulumi CLI. Longer numbers would lose digits.
# Some readers take 0o17, 1e3 and 08 for numbers.
_CERTAIN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "null": (r"(~|[Nn]ull|NULL)?", lambda text: None),
    "bool": (r"[Tt]rue|TRUE|[Ff]alse|FALSE", lambda text: text[0] in "tT"),
    "int": (r"(?=.{1,18}\Z)[-+]?(0|[1-9][0-9]*)", int),
    "float": (r"(?=.{1,18}\Z)[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]{1,2})?", float),
    "str": (r"(?s)(?![-+]?(0(o[0-7_]+|[0-9_]+)|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)\Z).*", str),
}
_DIGITS = "write a number with all its digits, at most 18 and no 0 before them, or "
_TAG = "tag:yaml.org,2002:"
_TAGS: dict[type, tuple[str, ...]] = {yaml.MappingNode: ("map",), yaml.SequenceNode: ("seq",)}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, if PyYAML has it, is ten times as fast


class FileError(Exception):
    """A file that cannot be used. The message is a sentence with its name, the line and the remedy; one line each."""


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a file, or raise FileError; an empty file is an empty mapping."""
    try:
        value, mistakes = _read(plain_file(path).decode())
    except OSError as error:
        raise FileError(f"{path.name} cannot be read: {error.strerror}; check that you own the file") from None
    except UnicodeDecodeError as error:
        problem = f"line {error.object.count(10, 0, error.start) + 1} contains bytes that are not UTF-8"
        raise FileError(f"{path.name} cannot be read: {problem}; save the file as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        problem, line = str(error.problem), error.problem_mark.line + 1 if error.problem_mark else 1
        if "; " not in problem:  # PyYAML's own message
            begin = f" ({error.context} from line {error.context_mark.line + 1})" if error.context_mark else ""
            fix = "correct the indentation (spaces, no tabs), a colon or a quote in this line or the one before it"
            fix += "; a text with brackets or a comma inside { } or [ ] needs quotes" * ("a flow" in str(error.context))
            problem = problem.replace("character that cannot start any token", "a tab, or a sign that needs quotes")
            problem = f"this is not YAML: {problem}{begin}; {fix}"
        raise FileError(f"{path.name} line {line}: {problem}") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow; this error has no line
        raise FileError(f"{path.name} cannot be read: {' '.join(str(error).split())}; remove it") from None
    if mistakes:
        more = [f"has {len(mistakes) - _MOST_MISTAKES} more such values"] * (len(mistakes) > _MOST_MISTAKES)
        raise FileError("\n".join(f"{path.name} {line}" for line in [*mistakes[:_MOST_MISTAKES], *more]))
    if not isinstance(value, dict | None):
        problem = f"{describe_type(value)}, not a mapping; write KEY: VALUE pairs, as in an example"
        raise FileError(f"{path.name} is {problem}")
    return value or {}


def inside(base_dir: Path, name: str) -> Path:
    """Return the path of a file that a config names; a relative one starts at `base_dir`."""
    try:
        return base_dir / Path(name).expanduser()
    except RuntimeError:  # ~name of an unknown user
        return base_dir / name


def plain_file(path: Path) -> bytes:
    """Return a file's content. FileError if it is too large, a pipe or a device; OSError if reading fails."""
    info, problem, content = path.stat(), "", b""
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):  # reading a folder raises an OSError
        problem = "it is not a regular file"
    elif info.st_size > LARGEST:
        problem = f"it has more than {LARGEST} bytes"
    elif (content := path.read_bytes()) and not info.st_size:  # a file of /proc, such as a process's environment
        problem = "the kernel creates it"
    if problem:
        raise FileError(f"{path.name} cannot be read: {problem}; write the path of your own file")
    return content


def describe_type(value: object) -> str:
    """Return a value's type as text, without the value."""
    return _KINDS.get(type(value).__name__, "a value")


def _read(text: str) -> tuple[Any, list[str]]:
    """Return the value of a text, and what is wrong in its lines, in their order."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        values += isinstance(event, yaml.NodeEvent)  # those that aliases repeat are counted with the nodes
        _limit(event, depth, values)
    node, values_of = yaml.compose(text, Loader=_LOADER), _Values()
    value = None if node is None else values_of.value(node, "the file", 1)
    return value, [mistake for _, mistake in sorted(values_of.mistakes.items())]


def _limit(node: Any, depth: int, values: int) -> None:
    problem = fix = ""
    if depth > DEEPEST:
        problem = f"lists and mappings are recursive, or nested more than {DEEPEST} deep"
        fix = "no key of a stack's config needs that; remove some"
    elif values > MOST_VALUES:
        problem = f"there are more than {MOST_VALUES:,} values, counting each repetition by an alias (*)"
        fix = "no stack's config needs that many; write fewer"
    if problem:
        raise yaml.MarkedYAMLError(problem=f"{problem}; {fix}", problem_mark=node.start_mark)


class _Values:
    """Makes values of nodes, and keeps mistakes by their place in the text."""

    def __init__(self) -> None:
        self.mistakes, self._count = dict[int, str](), 0

    def _keep(self, node: yaml.Node, problem: str, fix: str) -> None:
        mark = node.start_mark
        self.mistakes.setdefault(mark.index, f"line {mark.line + 1}: {problem}; {fix}")

    def value(self, node: yaml.Node, name: str, depth: int) -> Any:
        """Return the value of a node, which is called `name` in errors."""
        self._count += 1
        _limit(node, depth if isinstance(node, yaml.CollectionNode) else 0, self._count)
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind not in _TAGS.get(type(node), tuple(_KINDS)):
            problem = f"{name} has the tag {shown(node.tag.replace(_TAG, '!!'))}, which no key accepts"
            self._keep(node, problem, "write the text itself, or the list or mapping without the tag")
            return None
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, "an item of a list", depth + 1) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth + 1)
        if kind in ("int", "float") and ":" in text:  # base 60, such as 12:30:00; a text for the Pulumi CLI
            kind = "str"
        pattern, convert = _CERTAIN.get(kind, ("(?!)", str))
        if not re.fullmatch(pattern, text) and not (kind == "str" and getattr(node, "style", None)):
            problem = f"{name} is {shown(text)}, {_KINDS[kind]} to some readers of YAML and not to others"
            fix = {"bool": "write true or false, or ", "timestamp": ""}.get(kind, _DIGITS)
            self._keep(node, problem, f"{fix}put it in quotes if it is a text")
            return None
        return convert(text)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        mapping, merged, lines = dict[str, Any](), dict[str, Any](), dict[str, int]()
        for key, item in node.value:
            kind = _KINDS.get(key.tag.removeprefix(_TAG), key.tag)
            if kind not in ("a text", "'<<'") or not isinstance(key, yaml.ScalarNode):
                self._keep(key, f"a key is {kind}, not a text", "put it in quotes, or correct the key")
                continue
            if key.value in lines:
                problem = f"the key {shown(key.value)} occurs a second time (first in line {lines[key.value]})"
                self._keep(key, problem, "keep one of the two")
            lines[key.value], value = key.start_mark.line + 1, self.value(item, shown(key.value), depth)
            if kind == "a text":
                mapping[key.value] = value
                continue
            sources = value if isinstance(value, list) else [value]
            if all(isinstance(source, dict) for source in sources):
                merged = {name: value for source in reversed(sources) for name, value in source.items()}
            else:
                self._keep(item, "'<<' needs a mapping or list of mappings for merging", "write one, such as *NAME")
        return merged | mapping
