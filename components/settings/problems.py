"""Problems in the config: one line per problem, all problems in one message, never a secret."""

import difflib
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from components.settings.mask_secrets import MASK, looks_secret

ROOT = "tailrack:"  # the path of the config's top level
LONGEST_SHOWN = 60  # characters of a value in a message
MOST_SHOWN = 20  # problems in a message
MOST_KEPT = 1_000  # problems in memory; the rest are only counted

_LONGEST_NAME, _MOST_NAMES = 100, 100  # longer names and lists make suggestions slow and useless
_KEY = r"[A-Za-z0-9_-]{1,40}"
_ENDS = re.compile(r"[.\[]|$")  # of a path and of those above it
_CONFIG_SET = "pulumi config set"


@dataclass(frozen=True)
class Problem:
    """One problem in the config: the key's path and a line with value, consequence and remedy."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class ConfigError(Exception):
    """The stack config cannot be used. The message has the first of equal `problems`; `more` were not kept."""

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = tuple(problems)
        count = len(self.problems) + more
        title = f"{count} problem{'' if count == 1 else 's'} in the stack config (Pulumi.<stack>.yaml):"
        alike: dict[tuple[str, str], list[Problem]] = {}
        for problem in self.problems:
            alike.setdefault((re.sub(r"\[\d+\]", "", problem.path), problem.text), []).append(problem)
        shown = [*alike.values()][:MOST_SHOWN]
        lines = [f"  {one.path}{f' (and {len(like)} more like it)' * bool(like)}: {one.text}" for one, *like in shown]
        if left := count - sum(map(len, shown)):
            lines.append(f"  and {left} more; correct these, then run the same command again")
        super().__init__("\n".join([title, *lines]))

    def message_for(self, stack: str) -> str:
        """Return the message with the stack's name in the file name and the commands."""
        text = str(self).replace(f"{_CONFIG_SET} --path", f"{_CONFIG_SET} --stack {shlex.quote(stack)} --path")
        return text.replace("Pulumi.<stack>.yaml", f"Pulumi.{stack}.yaml").replace("STACK=...", f"STACK={stack}")


def shown(value: object) -> str:
    """Return a value for a message: one short line without secrets or the content of mappings and lists."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of over 38 digits"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str | PurePath):
        text = str(value)
        if looks_secret(text):
            return MASK
        return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def show_name(name: str, pattern: str = r"[a-z][a-z0-9-]{0,62}") -> str:
    """Return a name for running text; quote it if it is not a valid name."""
    return name if re.fullmatch(pattern, name) and shown(name) == repr(name) else shown(name)


def show_names(names: Collection[str]) -> str:
    """Return the first ten names, sorted, for running text."""
    return ", ".join(map(show_name, sorted(names)[:10])) + (", ..." if len(names) > 10 else "")


def child_path(path: str, key: object) -> str:
    """Return the path of `key`, a mapping's key or a list's index, below `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if isinstance(key, str) and show_name(key, _KEY) == key:
        return f"{path}{'' if path.endswith(':') else '.'}{key}"
    return f"{path}[{shown(key)}]"


def secret_command(path: str, stack: str = "") -> str:
    """Return the command that sets a secret at a path of the config."""
    return f"{_CONFIG_SET} {f'--stack {shlex.quote(stack)} ' * bool(stack)}--path --secret {shlex.quote(path)}"


def suggest(key: str, valid: Collection[str]) -> str:
    """Return a remedy for an unknown key or name: the most similar valid one, or all valid ones."""
    if len(valid) > _MOST_NAMES:
        return f"write one of the {len(valid)} valid names"
    names = sorted(valid)
    similar = difflib.get_close_matches(key, names, n=1) if len(key) <= _LONGEST_NAME else []
    if similar:
        return f"did you mean {shown(similar[0])}?"
    return f"write one of: {', '.join(show_name(name, _KEY) for name in names)}"


class Report:
    """Collects problems and warnings, and masks secrets: the values at and below these paths."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.problems: dict[Problem, None] = {}  # an ordered set
        self.warnings: dict[Problem, None] = {}  # about valid config that is probably a mistake
        self.more = 0  # problems beyond MOST_KEPT
        self.paths: dict[int, str] = {}  # of each section of a config that was read, by its id
        self._secrets = frozenset(secrets)

    def at(self, section: object, *keys: object) -> str:
        """Return the path of a section, or of a key in it and of an index or a key in that."""
        path = self.paths[id(section)]
        for key in keys:
            path = child_path(path, key)
        return path

    def place(self, section: object) -> str:
        """Return the path of a section for running text."""
        return self.at(section).removeprefix(ROOT)

    def hides(self, path: str) -> bool:
        """Return whether the path is that of a secret or below one."""
        return bool(self._secrets) and any(path[: end.start()] in self._secrets for end in _ENDS.finditer(path))

    def value(self, path: str, value: Any, show: Callable[[Any], str] = shown) -> str:
        """Return the value at `path` for a message."""
        return MASK if self.hides(path) else show(value)

    def bad(self, place: tuple[object, ...], problem: str, breaks: str, fix: str | Callable[[], str]) -> None:
        """Keep a problem of the value at the parts of a path (see `at`); the line begins with it."""
        path, value = self.at(*place), place[0]
        for key in place[1:]:
            value = value[key] if isinstance(value, Sequence) and isinstance(key, int) else getattr(value, str(key))
        self.add(path, f"{self.value(path, value if isinstance(value, int) else str(value))} {problem}", breaks, fix)

    def warn(self, path: str, text: str) -> None:
        """Keep a warning, which does not stop the run."""
        self.warnings[Problem(path, text)] = None

    def add(self, path: str | tuple[object, ...], problem: str, breaks: str, fix: str | Callable[[], str]) -> None:
        """Keep a problem once, at a path or the parts of one (see `at`). A slow `fix` is a callable."""
        path = path if isinstance(path, str) else self.at(*path)
        if len(self.problems) < MOST_KEPT:
            parts = (problem, breaks, fix if isinstance(fix, str) else fix())
            self.problems[Problem(path, "; ".join(filter(None, parts)))] = None
        else:
            self.more += 1


@dataclass(frozen=True)
class Stack:
    """Facts of a whole config, for the checks of its sections."""

    config: Any  # of stacks.config.model
    head: Any  # components.settings.cluster.Head; in a pool, one whose name and site match nothing
    sections: Sequence[Any]  # all of them, as components.settings.section.Section
    nodes: Sequence[Any]  # all of them, as stacks.sites.kind.NodeSpec
    sites: Collection[str]
    of_kind: Mapping[str, Any]  # lists of sites
    share: Collection[str]  # its two folders; none in a pool
    logins: Mapping[str, str]  # machines that tailrack logs in to, by account
    made: Sequence[str]  # sites whose machines the stack creates
    brings_tailnet: bool  # whether a site does
