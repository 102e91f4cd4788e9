"""What a program of a thousand hosts does not need, and would pay for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from pulumi import log

# By this path: pulumi.runtime has functions of the same names.
_REGISTERING: ModuleType = import_module("pulumi.runtime.resource")


@contextmanager
def tuned_runtime() -> Iterator[None]:
    """While resources are made: seldom look for garbage, and keep no record of where in the program each was made.

    And from now on: send no debug messages, and make no URNs that nobody reads.
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
