"""Settings of Python for every run, and replacements of functions of Pulumi's SDK for a run of many hosts.

The SDK's functions make a preview of 1,000 hosts several times as long. Each replacement depends on how the SDK calls
the function, so a stack of fewer hosts runs without them. tests/unit/stacks/test_runtime_tuning.py says what to check
when the SDK changes.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pulumi
from google.protobuf import struct_pb2  # type: ignore[import-untyped]
from pulumi import log

from components.steps.resource import CommandResource

# By these paths, because pulumi.runtime has functions of the same names.
_REGISTERING: ModuleType = import_module("pulumi.runtime.resource")
_RPC: ModuleType = import_module("pulumi.runtime.rpc")
_TYPES: ModuleType = import_module("pulumi._types")

# A stack of more hosts than this runs with the replacements.
MANY_HOSTS = 200
# Registrations that a preview has under way at a time. Each one is a thread, and an answer of the CLI wakes all of
# them. With the four threads for each of 64 parallel operations that `up` needs, a preview of 1,000 hosts took seconds
# more.
PREVIEWED_AT_A_TIME = 8

# Module and name of a function of the SDK to its replacement, which has the SDK's own function as `__wrapped__`.
REPLACEMENTS: dict[tuple[ModuleType, str], Any] = {}


@contextmanager
def tuned_python() -> Iterator[None]:
    """Collect garbage seldom, and record no places in the program, while resources are made."""
    # Nearly all that a stack makes lives until its end. Collections after each 700 new objects took two fifths of the
    # time of 1,000 hosts.
    gc.set_threshold(100_000)
    # The SDK finds no place in so short a stack of frames. The places would be a fifth of the state, which the CLI
    # writes twice a step, and they do not help someone who edits a config.
    sys.tracebacklimit = 1
    if pulumi.runtime.is_dry_run():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(PREVIEWED_AT_A_TIME))
    try:
        yield
    finally:
        del sys.tracebacklimit


def tune_sdk(hosts: int) -> None:
    """Replace functions of the SDK for a stack of many hosts; for any other, put the SDK's own functions back.

    A process may run several stacks. The replacements stay after this one's program has ended, because the SDK still
    waits for its resources then.
    """
    for (module, name), replacement in REPLACEMENTS.items():
        setattr(module, name, replacement if hosts > MANY_HOSTS else replacement.__wrapped__)


def _replaces(module: ModuleType, name: str) -> Callable[[Any], Any]:
    def add(replacement: Any) -> Any:
        # A process that imports this file again finds the earlier replacement in the SDK.
        current = getattr(module, name)
        replacement.__wrapped__ = getattr(current, "__wrapped__", current)
        REPLACEMENTS[module, name] = replacement
        return replacement

    return add


@_replaces(log, "debug")
def _debug(*_: Any, **__: Any) -> None:
    """Send no debug messages.

    The SDK sends four for each resource and waits for each answer. The CLI drops them unless it runs with --debug.
    """


class _NoUrn:
    async def future(self) -> None:
        """Return no URN."""


@_replaces(_REGISTERING, "create_urn")
def _create_urn(*_: Any) -> Any:
    """Make no URN.

    The SDK makes one for each resource and alias, from seven Outputs. It reads them only in tests without an engine,
    and for an engine without alias specs; every CLI that tailrack accepts has them.
    """
    return _NoUrn()


@_replaces(_RPC, "declare_dependency")
def _declare_dependency(*_: Any) -> bool:
    """Do not look for circles.

    For each dependency, the SDK walks through everything that the resource depends on. This program cannot have a
    circle, because it makes each resource from those before it.
    """
    return True


@_replaces(_TYPES, "resource_types")
def _resource_types(resource_class: type) -> Any:
    """Read the annotations of a resource's class once, and not for each resource."""
    return _types_of(resource_class)


@cache
def _types_of(resource_class: type) -> Any:
    return _resource_types.__wrapped__(resource_class)


@_replaces(_RPC, "transfer_properties")
def _transfer_properties(resource: pulumi.Resource, inputs: Mapping[str, Any], custom: bool) -> dict[str, Any]:
    """Make Outputs of those inputs and outputs of a command that the program reads; of another resource, of all.

    The SDK makes an Output of each one, from five futures, and copies the engine's answer into it.
    """
    if isinstance(resource, CommandResource):
        inputs = {name: inputs[name] for name in resource.READ if name in inputs}
    resolvers: dict[str, Any] = _transfer_properties.__wrapped__(resource, inputs, custom)
    return resolvers


@_replaces(_RPC, "resolve_outputs")
def _resolve_outputs(
    resource: pulumi.Resource,
    inputs: struct_pb2.Struct,
    outputs: struct_pb2.Struct,
    dependencies: Mapping[str, Any],
    resolvers: Mapping[str, Any],
    *options: Any,
    **more_options: Any,
) -> None:
    """Read those values of the engine's answer that have an Output. A command's keys are the same in Python."""
    if isinstance(resource, CommandResource):
        inputs, outputs = (_only(resolvers, values) for values in (inputs, outputs))
    _resolve_outputs.__wrapped__(resource, inputs, outputs, dependencies, resolvers, *options, **more_options)


def _only(names: Mapping[str, Any], values: struct_pb2.Struct) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields={name: values.fields[name] for name in names if name in values.fields})
