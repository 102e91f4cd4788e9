"""Resources of pulumi-command that pass only the inputs given.

The provider's own classes make an Output of every possible input and read its type again for each resource: a third of
a preview of a thousand hosts. The engine gets the same inputs; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import pulumi

LOCAL, REMOTE, COPY = "command:local:Command", "command:remote:Command", "command:remote:CopyToRemote"


@dataclass(frozen=True)
class Options:
    """The options of a resource that this project uses.

    secret_outputs   names of outputs that are secret
    ignored          inputs whose changes are ignored
    """

    parent: pulumi.Resource
    depends_on: Sequence[pulumi.Resource] | pulumi.Output[Any] = ()
    deleted_with: pulumi.Resource | None = None
    secret_outputs: Sequence[str] = ()
    delete_before_replace: bool | None = None
    ignored: Sequence[str] | None = None


class CommandResource(pulumi.CustomResource):
    """A command or a copy. Inputs have the provider's names; an input of None is left out.

    stdout   Output[str] of a command
    READ     the only outputs in a stack of many hosts (stacks/runtime_tuning.py)
    """

    READ = ("stdout",)
    stdout: pulumi.Output[str]

    def __init__(self, kind: str, name: str, inputs: Mapping[str, pulumi.Input[Any]], options: Options) -> None:
        given = {key: value for key, value in inputs.items() if value is not None}
        if "connection" in given:
            options = Options(**{**vars(options), "secret_outputs": [*options.secret_outputs, "connection"]})
        super().__init__(
            kind,
            name,
            given if kind == COPY else {**given, "stdout": None},
            pulumi.ResourceOptions(
                version=_version(),
                parent=options.parent,
                depends_on=options.depends_on
                if isinstance(options.depends_on, pulumi.Output)
                else list(options.depends_on),
                deleted_with=options.deleted_with,
                additional_secret_outputs=list(options.secret_outputs) or None,
                replace_on_changes=["triggers[*]"],
                delete_before_replace=options.delete_before_replace,
                ignore_changes=list(options.ignored) if options.ignored is not None else None,
            ),
        )


@cache
def _version() -> str:
    """Return the version of the provider, which is that of its package."""
    return version("pulumi-command")
