"""Values that are known late, made of as few of Pulumi's Outputs as can be.

An Output costs a task and a dozen objects, and the runtime waits for each: of a thousand hosts they were most of the
time of a preview. Output.all looks for more of them inside of each value, and makes one of whatever it finds there;
`output["key"]` makes one of each key. Here what is known makes none, and what is made of many makes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pulumi

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class OutputField:
    """One of the values of an Output that is a mapping; it costs none of its own."""

    of: pulumi.Output[Any]
    name: str


def output_fields(of: pulumi.Output[Any], names: Iterable[str]) -> dict[str, OutputField]:
    """Return some values of an Output that is a mapping, by name."""
    return {name: OutputField(of, name) for name in names}


# What stands for a value: the value itself, an Output of it, or a OutputField.
Value = Any


@dataclass(frozen=True)
class Resolved:
    """What Outputs came to: the resources they are of, their values, whether all are known, whether any is secret."""

    resources: set[pulumi.Resource]
    values: dict[Any, Any]
    known: bool
    secret: bool


async def resolve(inputs: Mapping[Any, Value]) -> Resolved:
    """Wait for the Outputs and Fields among values by name. Nobody looks for more of them inside of the values."""
    resources: set[pulumi.Resource] = set()
    values, all_known, secret = dict(inputs), True, False
    for name, given in inputs.items():
        output = given.of if isinstance(given, OutputField) else given
        if not isinstance(output, pulumi.Output):
            continue
        resources |= await output.resources()
        known = await output.is_known()
        value = await output.future(with_unknowns=True)
        values[name] = cast(Mapping[str, Any], value)[given.name] if known and isinstance(given, OutputField) else value
        all_known = all_known and known
        secret = secret or await output.is_secret()
    return Resolved(resources, values, all_known, secret)


def is_output(value: Value) -> bool:
    """Whether a value is known only later."""
    return isinstance(value, pulumi.Output | OutputField)


def combine(
    inputs: Mapping[K, Value], make: Callable[[Mapping[K, Any]], T], *, hidden: bool = False
) -> pulumi.Input[T]:
    """Return what `make` makes of values by name: at once, unless some of them are known only later.

    hidden   it is a secret once it is known, whatever it is made of (secret_once_known)
    """
    if not any(map(is_output, inputs.values())):
        value = make(inputs)
        return pulumi.Output.secret(value) if hidden else value
    return as_output(inputs, make, hidden=hidden)


def as_output(
    inputs: Mapping[K, Value], make: Callable[[Mapping[K, Any]], T], *, hidden: bool = False
) -> pulumi.Output[T]:
    """Return the same as an Output, whatever is known."""

    async def wait() -> Parts:
        found = await resolve(inputs)
        value = make(found.values) if found.known else None
        return found.resources, value, found.known, found.known if hidden else found.secret

    return output_from(wait())


def as_dict(inputs: Mapping[K, Value]) -> pulumi.Output[dict[K, Any]]:
    """Return values by name as one Output."""
    return as_output(inputs, dict)


def nested(groups: Mapping[str, Mapping[str, Value]]) -> pulumi.Output[dict[str, dict[str, Any]]]:
    """Return mappings by name as one Output."""
    flat = {(group, name): value for group, inputs in groups.items() for name, value in inputs.items()}

    def put_back(known: Mapping[tuple[str, str], Any]) -> dict[str, dict[str, Any]]:
        return {group: {name: known[group, name] for name in inputs} for group, inputs in groups.items()}

    return as_output(flat, put_back)


def secret_once_known(value: pulumi.Output[T]) -> pulumi.Output[T]:
    """Return the output as a secret when it is known, and unmarked when it is not.

    A value that depends on a failed step is unknown and has nothing to hide. Marked as secret it would make the CLI
    (3.260, "malformed RPC secret") end the whole run, the steps of healthy machines included.
    """
    return as_output({"value": value}, lambda known: known["value"], hidden=True)


# Resources, the value, whether it is known, whether it is secret.
Parts = tuple[set[pulumi.Resource], Any, bool, bool]


def output_from(parts: Coroutine[Any, Any, Parts]) -> pulumi.Output[Any]:
    """Return the Output of which these are the parts."""
    told = asyncio.ensure_future(parts)
    # A failure is the Output's to tell, once.
    told.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return _Settled(*(_Part(told, index) for index in range(4)))


class _Settled(pulumi.Output[T]):
    """An Output with no other in its value. The runtime looks for some, and makes a dozen Outputs of a connection."""

    def apply(self, func: Callable[[Any], Any], run_with_unknowns: bool = False) -> pulumi.Output[Any]:
        return self if func is pulumi.Output.from_input else super().apply(func, run_with_unknowns)


class _Part:
    """One of the values that a future gives. A coroutine in its place would be reported where nobody awaits it."""

    def __init__(self, whole: asyncio.Future[Any], index: int) -> None:
        self._whole, self._index = whole, index

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self._whole.__await__())[self._index]
