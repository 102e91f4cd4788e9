"""Combine Pulumi Outputs once per step instead of once per value.

An Output costs a task and a dozen objects, and the runtime waits for each: with a thousand hosts they took most of the
time of a preview. Output.all also searches each value for Outputs, and `output["key"]` makes one Output per key. Here,
known values make no Output, and a combination of many values makes one.
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
    """One value of an Output that is a mapping, without a separate Output."""

    of: pulumi.Output[Any]
    name: str


def output_fields(of: pulumi.Output[Any], names: Iterable[str]) -> dict[str, OutputField]:
    """Return fields of an Output that is a mapping, by name."""
    return {name: OutputField(of, name) for name in names}


# A value, an Output of it, or an OutputField.
Value = Any


@dataclass(frozen=True)
class Resolved:
    """The values of Outputs, with their resources, whether all are known, and whether any is secret."""

    resources: set[pulumi.Resource]
    values: dict[Any, Any]
    known: bool
    secret: bool


async def resolve(inputs: Mapping[Any, Value]) -> Resolved:
    """Wait for the Outputs and OutputFields among values by name. Nested Outputs inside values are not resolved."""
    resources: set[pulumi.Resource] = set()
    values, all_known, secret = dict(inputs), True, False
    for name, item in inputs.items():
        output = item.of if isinstance(item, OutputField) else item
        if not isinstance(output, pulumi.Output):
            continue
        resources |= await output.resources()
        is_known = await output.is_known()
        value = await output.future(with_unknowns=True)
        values[name] = (
            cast(Mapping[str, Any], value)[item.name] if is_known and isinstance(item, OutputField) else value
        )
        all_known = all_known and is_known
        secret = secret or await output.is_secret()
    return Resolved(resources, values, all_known, secret)


def independent(value: pulumi.Input[Any]) -> pulumi.Input[Any]:
    """Return the value without its resources once it is known.

    A resource with such inputs does not name in the state the resources that made them. The CLI (3.260, with
    --continue-on-error) skips what needs a failed step and keeps its old entry; if that entry names a resource that the
    same run deletes, the CLI dies with "snapshot integrity failure".
    """
    if not isinstance(value, pulumi.Output):
        return value

    async def wait() -> OutputParts:
        resolved = await resolve({"": value})
        known = resolved.known
        return set() if known else resolved.resources, resolved.values[""] if known else None, known, resolved.secret

    return output_from(wait())


def is_output(value: Value) -> bool:
    """Return whether a value is an Output or a field of one."""
    return isinstance(value, pulumi.Output | OutputField)


def combine(
    inputs: Mapping[K, Value], make: Callable[[Mapping[K, Any]], T], *, hidden: bool = False
) -> pulumi.Input[T]:
    """Return `make(inputs)`: directly if all inputs are plain values, else as one Output.

    hidden   the result is secret once it is known, even if no input is (secret_once_known)
    """
    if not any(map(is_output, inputs.values())):
        value = make(inputs)
        return pulumi.Output.secret(value) if hidden else value
    return as_output(inputs, make, hidden=hidden)


def as_output(
    inputs: Mapping[K, Value], make: Callable[[Mapping[K, Any]], T], *, hidden: bool = False
) -> pulumi.Output[T]:
    """Return `make(inputs)` as an Output, like `combine`, even if all inputs are plain values."""

    async def wait() -> OutputParts:
        resolved = await resolve(inputs)
        value = make(resolved.values) if resolved.known else None
        return resolved.resources, value, resolved.known, resolved.known if hidden else resolved.secret

    return output_from(wait())


def as_dict(inputs: Mapping[K, Value]) -> pulumi.Output[dict[K, Any]]:
    """Return values by name as one Output."""
    return as_output(inputs, dict)


def nested(groups: Mapping[str, Mapping[str, Value]]) -> pulumi.Output[dict[str, dict[str, Any]]]:
    """Return mappings by name as one Output."""
    flat = {(group, name): value for group, inputs in groups.items() for name, value in inputs.items()}

    def regroup(values: Mapping[tuple[str, str], Any]) -> dict[str, dict[str, Any]]:
        return {group: {name: values[group, name] for name in inputs} for group, inputs in groups.items()}

    return as_output(flat, regroup)


def secret_once_known(value: pulumi.Output[T]) -> pulumi.Output[T]:
    """Return the output, marked as secret only if it is known.

    A value that depends on a failed step is unknown. If it were marked as secret, the CLI (3.260, "malformed RPC
    secret") would end the whole run, including the steps of healthy machines.
    """
    return as_output({"value": value}, lambda values: values["value"], hidden=True)


# Resources, the value, whether it is known, whether it is secret.
OutputParts = tuple[set[pulumi.Resource], Any, bool, bool]


def output_from(parts: Coroutine[Any, Any, OutputParts]) -> pulumi.Output[Any]:
    """Return an Output made from its parts."""
    future = asyncio.ensure_future(parts)
    # Retrieve the exception, so that asyncio does not report it a second time: the Output does.
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return _FlatOutput(*(_Part(future, index) for index in range(4)))


class _FlatOutput(pulumi.Output[T]):
    """An Output whose value contains no Output. The runtime would search it and make a dozen Outputs per connection."""

    def apply(self, func: Callable[[Any], Any], run_with_unknowns: bool = False) -> pulumi.Output[Any]:
        return self if func is pulumi.Output.from_input else super().apply(func, run_with_unknowns)


class _Part:
    """One item of a future's tuple. Unlike a coroutine, it causes no warning if it is never awaited."""

    def __init__(self, whole: asyncio.Future[Any], index: int) -> None:
        self._whole, self._index = whole, index

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self._whole.__await__())[self._index]
