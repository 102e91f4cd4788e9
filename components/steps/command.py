"""pulumi-command's resources, with the inputs that are given and no more.

The classes that come with the provider make an Output of every input that there could be and read its type anew for
each resource: at a thousand hosts a third of a preview. What goes to the engine is the same, which a test compares.
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
    """Of what a resource can be told besides its inputs, what these are.

    secret_outputs   their names
    ignored          inputs of which another value changes nothing
    former_names     names that the resource had before, by which a state may know it
    """

    parent: pulumi.Resource
    depends_on: Sequence[pulumi.Resource] = ()
    deleted_with: pulumi.Resource | None = None
    secret_outputs: Sequence[str] = ()
    delete_before_replace: bool | None = None
    ignored: Sequence[str] | None = None
    former_names: Sequence[str] = ()


class CommandResource(pulumi.CustomResource):
    """A command, or a copy, by its inputs as the provider names them; None where one is not given.

    stdout   Output[str], of a command
    READ     what else there is of it when the runtime is tuned (stacks/runtime_tuning.py): nothing
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
                depends_on=list(options.depends_on),
                deleted_with=options.deleted_with,
                aliases=[pulumi.Alias(name=former) for former in options.former_names] or None,
                additional_secret_outputs=list(options.secret_outputs) or None,
                replace_on_changes=["triggers[*]"],
                delete_before_replace=options.delete_before_replace,
                ignore_changes=list(options.ignored) if options.ignored is not None else None,
            ),
        )


@cache
def _version() -> str:
    """The provider's version, which is that of its package."""
    return version("pulumi-command")
