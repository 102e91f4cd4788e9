"""The outputs that the last run of a stack left: of this stack itself, and of a pool's cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi.runtime.rpc import contains_unknowns

from components.steps.values import OutputParts, as_output, output_from, resolve
from stacks.sites.hosts.outputs import OtherStack

FUNCTION = "pulumi:pulumi:readStackOutputs"


class StackOutputs(OtherStack):
    """The outputs of a stack but those that a failed step left unknown: a preview says what `up` does."""

    def value(self, name: str) -> Any:
        """Return one of them as a plain value; None if the stack has none of that name."""
        return self.outputs.get(name)

    def output(self, name: str) -> pulumi.Output[Any]:
        """Return the same as an Output, a secret if it was one."""
        return as_output({}, lambda _: self.value(name), hidden=name in self.secrets)

    def completed(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of this run, each with its last value where `up` leaves it unknown.

        An output that needs a failed step is unknown, and the CLI then drops its last value too: the next run would
        measure again, and an elastic pool would give back machines that run jobs.
        """
        if pulumi.runtime.is_dry_run():
            return dict(outputs)
        return {
            name: _completed(value, self.outputs.get(name), name in self.secrets) for name, value in outputs.items()
        }


def _completed(value: pulumi.Input[Any], last: Any, hidden: bool) -> pulumi.Input[Any]:
    """Return a value, or the last one if it is unknown. A mapping keeps its Outputs: each is a secret by itself."""
    if isinstance(value, Mapping):
        before = last if isinstance(last, Mapping) else {}
        return {key: _completed(part, before.get(key), hidden) for key, part in value.items()}
    if not isinstance(value, pulumi.Output):
        return value

    async def wait() -> OutputParts:
        now = await resolve({"": value})
        if now.known or last is None:
            return now.resources, now.values[""], now.known, now.secret
        return set(), last, True, hidden

    return output_from(wait())


class UnreadableStackError(pulumi.RunError):
    """The outputs of a stack cannot be read, for a reason that the engine reports."""

    def __init__(self, stack: str, reason: str) -> None:
        super().__init__(f"the outputs of stack {stack!r} cannot be read: {reason}")
        self.reason = reason


async def read_outputs(stack: str) -> StackOutputs:
    """Return the outputs of a stack, by its name in any form that Pulumi reads. RunError if they cannot be read.

    This calls a function of the engine. A StackReference is a resource: `pulumi preview --diff` would print all that
    has changed in the outputs since the run before, hundreds of lines.

    Await this before you register anything else. Backends in files and buckets write a state in two steps, the state
    and its attributes (gocloud.dev, fileblob/attrs.go), at each resource that changes. A read between the two steps
    finds no attributes, and the whole run fails: "failed to load checkpoint: EOF". The stack itself is such a resource.
    """
    if (root := pulumi.runtime.get_root_resource()) is not None:
        await root.urn.future()
    try:
        answer = await pulumi.runtime.invoke_async(FUNCTION, {"name": stack})
    except Exception as error:  # noqa: BLE001 - the SDK raises nothing more specific
        reason = str(error).rpartition("returned an error: ")[2]
        raise UnreadableStackError(stack, reason) from None
    values = {name: value for name, value in answer["outputs"].items() if not contains_unknowns(value)}
    return StackOutputs(values, frozenset(answer["secretOutputNames"]))


async def read_other_stacks(names: Iterable[str]) -> dict[str, OtherStack]:
    """Return the outputs of stacks by name, or the reasons why they cannot be read."""
    stacks: dict[str, OtherStack] = {}
    for name in names:
        try:
            stacks[name] = await read_outputs(name)
        except UnreadableStackError as error:
            stacks[name] = OtherStack(error=error.reason)
    return stacks
