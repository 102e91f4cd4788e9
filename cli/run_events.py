"""The input and output of a run: config, events during the run, its summary, errors."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from cli.pulumi.workspace import CliError
from components.settings.mask_secrets import MASK

OPERATIONS = ("create", "update", "replace", "delete", "same")


class EngineError(CliError):
    """The run cannot start or continue. The message says why and what to do. The operation has changed nothing."""


@dataclass(frozen=True)
class Config:
    """A stack's config.

    passphrase    encrypts the state
    values        texts by `project:key`
    secret_keys   the keys whose values are secret
    secrets       texts that no message may show
    """

    project: str
    passphrase: str = field(repr=False)
    values: Mapping[str, str] = field(default_factory=dict)
    secret_keys: Collection[str] = ()
    secrets: Collection[str] = ()


@dataclass(frozen=True)
class Event:
    """One line of progress. Secrets are masked in all of it.

    kind            start, done, failed, skipped or message
    operation       one of OPERATIONS
    seconds         how long a finished step took
    text            a message, an error, or why a step was skipped
    command         command_of the resource's inputs; for a delete, of the old inputs
    before, after   old and new inputs of a started step; empty before a create and after a delete
    outputs         old outputs of a started step
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
    """Return `create` of inputs, or the first trigger without one; empty if that is secret or unknown."""
    triggers = inputs.get("triggers")
    command = inputs.get("create", triggers[0] if isinstance(triggers, list) and triggers else "")
    return command if isinstance(command, str) and command not in (UNKNOWN, MASK) else ""  # a secret is no str


Tell = Callable[[Event], None]


@dataclass(frozen=True)
class Made:
    """A resource as the last run left it.

    command      command_of its inputs
    stdin        of a command; MASK if it is secret. whole_stdin: secret or not
    stdout       of a command, secret or not
    values_of    URNs of the resources whose outputs are among its inputs
    connection   of a command by SSH, with the provider's keys and with secrets; empty for other resources
    """

    urn: str
    command: str = ""
    stdin: str = field(default="", repr=False)
    stdout: str = field(default="", repr=False)
    values_of: Collection[str] = ()
    connection: Mapping[str, Any] = field(default_factory=dict, repr=False)
    whole_stdin: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]


def nodes_of(resources: Iterable[Made]) -> list[str]:
    """Return the names of a stack's compute nodes."""
    kind = "tailrack:cluster:ComputeNode"
    return [resource.name for resource in resources if resource.urn.rpartition("::")[0].endswith(kind)]


def node_of(resource: str, names: Iterable[str]) -> str:
    """Return the node that a resource belongs to by its name, such as c1-container; empty if to none."""
    return next((name for name in names if resource == name or resource.startswith(f"{name}-")), "")


@dataclass(frozen=True)
class Failure:
    """A failed step: its URN and its Event's `command`; both are empty if the program failed or the run was stopped."""

    urn: str
    message: str
    command: str = ""

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]


@dataclass
class Summary:
    """The result of a run: resources by operation, failures in their order, and its seconds."""

    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(OPERATIONS, 0)))
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Return whether nothing failed."""
        return not self.failures
