"""How the config says what is wrong: one line a problem, all problems at once, never a secret."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

ROOT = "tailrack:"  # the path of the config's top level
MASK = "[secret]"
LONGEST_SHOWN = 60  # characters of a value in a message
MOST_TOLD = 20  # problems in a message
MOST_KEPT = 1_000  # problems kept at all; of those beyond only the number is

_TOP = re.compile(rf"{ROOT}([^.\[]+)")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,40}")
_LOOKS_SECRET = re.compile(r"tskey-|PRIVATE KEY|://[^/]*@")


@dataclass(frozen=True)
class KeyHelp:
    """What a field says about itself when its value is missing or wrong."""

    wants: str  # completes "is not ...", and is the type in the reference
    breaks: str  # the consequence of a wrong value
    fix: str  # the remedy
    secret: bool = False  # the value is never shown
    otherwise: str = "none"  # what the reference gives for a default that is no plain value


@dataclass(frozen=True)
class Problem:
    """One thing wrong in the config: the key's path, and a line that says value, consequence and remedy."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class ConfigError(Exception):
    """The stack config cannot be used; `problems` has every reason, the message one line for each of the first ones.

    more   how many there are besides
    """

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = tuple(problems)
        count = len(self.problems) + more
        title = f"{count} problem{'' if count == 1 else 's'} in the stack config (Pulumi.<stack>.yaml):"
        lines = [f"  {problem}" for problem in self.problems[:MOST_TOLD]]
        if count > MOST_TOLD:
            lines.append(f"  and {count - MOST_TOLD} more; correct these, and run it again")
        super().__init__("\n".join([title, *lines]))

    def words(self, stack: str) -> str:
        """The message with the name of the stack in its file's name and in the commands that it names."""
        return str(self).replace("Pulumi.<stack>.yaml", f"Pulumi.{stack}.yaml").replace("STACK=...", f"STACK={stack}")


def shown(value: object) -> str:
    """The value as a message shows it: one line, short, nothing from inside a mapping or list, no secret."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of over 38 digits"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str | PurePath):
        text = str(value)
        if _LOOKS_SECRET.search(text):
            return MASK
        return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def bare(name: str) -> str:
    """A name as running text has it; one that is no name, as a message shows a value."""
    return name if re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name) and shown(name) == repr(name) else shown(name)


def word(text: str) -> str:
    """A key or name as running text has it; one that is none, as a message shows a value."""
    return text if _PLAIN_KEY.fullmatch(text) and not _LOOKS_SECRET.search(text) else shown(text)


def listed(names: Collection[str]) -> str:
    """The first ten names in order, as running text has them."""
    return ", ".join(bare(name) for name in sorted(names)[:10]) + (", ..." if len(names) > 10 else "")


def below(path: str, key: object) -> str:
    """The path of `key` (a mapping's key, or a list's index) below `path`."""
    dot = "" if path.endswith(":") else "."
    if isinstance(key, int):
        return f"{path}[{key}]"
    if isinstance(key, str) and _PLAIN_KEY.fullmatch(key) and not _LOOKS_SECRET.search(key):
        return f"{path}{dot}{key}"
    return f"{path}[{shown(key)}]"


class Report:
    """Collects problems; knows which top-level keys are secret, and shows none of their values."""

    def __init__(self, secret_keys: frozenset[str]) -> None:
        self.problems: dict[Problem, None] = {}  # keys alone: in order, each once
        self.warnings: dict[Problem, None] = {}  # what holds, and was hardly meant
        self.more = 0  # beyond those that are kept
        self._secret_keys = secret_keys

    def hides(self, path: str) -> bool:
        """Whether the path lies under a top-level key that holds a secret."""
        if not self._secret_keys:
            return False
        top = _TOP.match(path)
        return top is not None and top[1] in self._secret_keys

    def value(self, path: str, value: object) -> str:
        """The value at `path` as a message may show it."""
        return MASK if self.hides(path) else shown(value)

    def warn(self, path: str, text: str) -> None:
        """Keep what whoever wrote the config is told, and what keeps nothing from being done."""
        self.warnings[Problem(path, text)] = None

    def add(self, path: str, what: str, breaks: str, fix: str | Callable[[], str]) -> None:
        """Report a problem once, however many checks find it; a `fix` that takes time is only asked for when kept."""
        if len(self.problems) < MOST_KEPT:
            self.problems[Problem(path, f"{what}; {breaks}; {fix if isinstance(fix, str) else fix()}")] = None
        else:
            self.more += 1
