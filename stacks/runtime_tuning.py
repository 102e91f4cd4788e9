"""What a program of a thousand hosts does not need, and would pay for."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pulumi
from google.protobuf import struct_pb2  # type: ignore[import-untyped]
from pulumi import log

from components.steps.command import CommandResource

# By these paths: pulumi.runtime has functions of the same names.
_REGISTERING: ModuleType = import_module("pulumi.runtime.resource")
_RPC: ModuleType = import_module("pulumi.runtime.rpc")
_TYPES: ModuleType = import_module("pulumi._types")

# Registrations that a preview has under way at a time. Each is a thread that the CLI's answer wakes, and all the others
# with it: of the four for each of 64 parallel operations, which `up` needs, a preview of a thousand hosts paid seconds.
PREVIEWED_AT_A_TIME = 8


@contextmanager
def tuned_runtime() -> Iterator[None]:
    """While resources are made: seldom look for garbage, and keep no record of where in the program each was made.

    And from now on: send no debug messages, make no URNs and no Outputs that nobody reads, look for no circles.
    """
    # Next to nothing that a stack makes is garbage before its end. To look for some after each 700 new objects took two
    # fifths of the time of a thousand hosts.
    gc.set_threshold(100_000)
    # The runtime finds no place in so short a stack. The places would be a fifth of the state, which the CLI writes
    # twice a step, and help nobody who edits a config.
    sys.tracebacklimit = 1
    # The runtime calls the CLI four times a resource to say what it is about to do, and waits for each answer. The CLI
    # throws it away unless it was started with --debug.
    log.debug = _say_nothing
    # Of each resource the runtime makes a URN, by seven Outputs, for tests without an engine. The engine's is another.
    _REGISTERING.create_urn = _urn  # type: ignore[attr-defined]
    # Of each input of a resource the runtime makes an Output, of five futures, and reads the engine's answer into it.
    _RPC.transfer_properties = _transferred  # type: ignore[attr-defined]
    _RPC.resolve_outputs = _resolved  # type: ignore[attr-defined]
    # It goes through all that a resource depends on for each dependency, in search of a circle. The program has none,
    # as it makes of each resource what comes after it.
    _RPC.declare_dependency = _no_circle  # type: ignore[attr-defined]
    # It reads the annotations of a resource's class anew for each resource.
    _TYPES.resource_types = _resource_types  # type: ignore[attr-defined]
    if pulumi.runtime.is_dry_run():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(PREVIEWED_AT_A_TIME))
    try:
        yield
    finally:
        del sys.tracebacklimit


def _say_nothing(*_: Any, **__: Any) -> None:
    """Take what log.debug takes."""


class _NoUrn:
    async def future(self) -> None:
        """Give what a registration without an engine would be answered."""


_create_urn = getattr(_REGISTERING.create_urn, "__wrapped__", _REGISTERING.create_urn)


def _urn(name: Any, type_: Any, parent: Any = None, *of_alias: Any) -> Any:
    """Return none for a registration, and one for an alias: only that comes with a project and a stack, or late."""
    is_alias = of_alias or not isinstance(name, str) or not isinstance(parent, str | None)
    return _create_urn(name, type_, parent, *of_alias) if is_alias else _NoUrn()


_urn.__wrapped__ = _create_urn  # type: ignore[attr-defined]


def _no_circle(*_: Any) -> bool:
    return True


_resource_types = cache(_TYPES.resource_types)
_transfer, _resolve = _RPC.transfer_properties, _RPC.resolve_outputs


def _transferred(resource: pulumi.Resource, inputs: Mapping[str, Any], custom: bool) -> dict[str, Any]:
    """Make Outputs of what is read of a resource; of every one but a command that is whatever it has."""
    if isinstance(resource, CommandResource):
        inputs = {name: inputs[name] for name in resource.READ if name in inputs}
    resolvers: dict[str, Any] = _transfer(resource, inputs, custom)
    return resolvers


def _resolved(
    resource: pulumi.Resource,
    given: struct_pb2.Struct,
    answered: struct_pb2.Struct,
    needs: Mapping[str, Any],
    resolvers: Mapping[str, Any],
    *how: Any,
    **named: Any,
) -> None:
    """Read of the engine's answer what there are Outputs for. The keys of commands are the same in Python."""
    if isinstance(resource, CommandResource):
        given, answered = (_those(resolvers, values) for values in (given, answered))
    _resolve(resource, given, answered, needs, resolvers, *how, **named)


def _those(wanted: Mapping[str, Any], values: struct_pb2.Struct) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields={name: values.fields[name] for name in wanted if name in values.fields})
