"""What a run is given and what it tells: config, events while it goes, a summary when it is over, errors."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from engine.values import HIDDEN

OPERATIONS = ("create", "update", "replace", "delete", "same")


class EngineError(Exception):
    """The run cannot start or go on; the message says why and what to do. Nothing was touched by this step."""


@dataclass(frozen=True)
class Config:
    """A stack's config: texts by `project:key`, the keys that are secret, and the texts no message may show.

    `passphrase` is what the state's secrets are encrypted with.
    """

    project: str
    passphrase: str = field(repr=False)
    values: Mapping[str, str] = field(default_factory=dict)
    secret_keys: Collection[str] = ()
    secrets: Collection[str] = ()


@dataclass(frozen=True)
class Event:
    """One line of progress. `kind` is start, done, failed, skipped or message; `operation` is one of OPERATIONS.

    `seconds` is how long a finished step took; `text` is a message, an error, or why a step was skipped. `command` is
    what command_of says of the resource's inputs (at a delete, as they were). `before`
    and `after` are the inputs that a started step begins and ends with, every secret hidden; none before a create, none
    after a delete. `outputs` are those that it begins with, secrets hidden as well.
    """

    kind: str
    operation: str = ""
    urn: str = ""
    name: str = ""
    type: str = ""
    seconds: float = 0.0
    text: str = ""
    command: str = ""
    before: Mapping[str, Any] = field(default_factory=dict, repr=False)
    after: Mapping[str, Any] = field(default_factory=dict, repr=False)
    outputs: Mapping[str, Any] = field(default_factory=dict, repr=False)


def command_of(inputs: Mapping[str, Any]) -> str:
    """Return the `create` among inputs, of what has none its first trigger; empty where that is secret or not known."""
    triggers = inputs.get("triggers")
    command = inputs.get("create", triggers[0] if isinstance(triggers, list) and triggers else "")
    return command if isinstance(command, str) and command not in (UNKNOWN, HIDDEN) else ""  # a secret is no text


Tell = Callable[[Event], None]


@dataclass(frozen=True)
class Made:
    """A resource as the last run left it.

    command    what command_of says of its inputs
    stdin      of a command; HIDDEN where it is a secret
    stdout     of a command, secret or not
    values_of  URNs of the resources whose outputs are among its inputs
    connection    of a command by SSH, in the provider's words, secrets among them; empty for others
    """

    urn: str
    command: str = ""
    stdin: str = field(default="", repr=False)
    stdout: str = field(default="", repr=False)
    values_of: Collection[str] = ()
    connection: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Failure:
    """A step that failed, by URN and Event's `command`; both empty where the program failed or the run was stopped."""

    urn: str
    message: str
    command: str = ""


@dataclass
class Summary:
    """Resources by operation, failures in the order they happened, and the seconds the run took."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATIONS, 0))
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True when nothing failed."""
        return not self.failures
