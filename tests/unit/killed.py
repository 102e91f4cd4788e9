"""A step whose process is killed at a moment that a test chooses."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import pytest

from components.node import files, run
from components.roles.access.ssh_trust import ask


class Killed(BaseException):
    """The step's process ends, with no time for anything else."""


@contextmanager
def killed_before(number: int, changes: Sequence[str], starts: Sequence[ModuleType]) -> Iterator[None]:
    """End what runs inside before the change of a file or the start of a program that has this number.

    changes   functions of components.node.files
    starts    modules that import `attempt` by its name
    """
    left = itertools.count(number, -1)

    def or_killed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **how: Any) -> Any:
            if next(left) == 1:
                raise Killed
            return function(*arguments, **how)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in changes:
            patch.setattr(files, name, or_killed(getattr(files, name)))
        attempt = or_killed(run.attempt)
        for module in (run, *starts):
            patch.setattr(module, "attempt", attempt)
        patch.setattr(ask, "attempt_bounded", or_killed(run.attempt_bounded))
        with suppress(Killed):
            yield
