"""How much work Python does, counted and not timed: the same on a busy machine, a slow one, and in a long process."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def lines(done: Callable[[], object]) -> int:
    """How many lines of Python are executed, each turn of a loop and each call and return among them.

    Not seen: what C does in one call, such as comparing a text with each of a list's. See Name.
    """
    count = 0

    def step(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal count
        count += 1
        return step

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # what earlier tests left would be taken away here, with lines of its own
    sys.settrace(step)
    try:
        done()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


class Name(str):
    """A text compared in Python: `name in names`, `names.index(name)` and `set(names)` show in the count of lines."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def named(value: object) -> object:
    """A value with Names for its texts: one text, or those of a tuple."""
    if isinstance(value, tuple):
        return tuple(map(named, value))
    return Name(value) if isinstance(value, str) else value


def assert_linear(work: Callable[[int], int], number: int) -> None:
    """Twice as much is no more work than twice, and thrice as much no more than thrice.

    work     the work for a number of things
    number   of things, large enough that what is done for all pairs of them would outweigh what is done for each
    """
    work(number)  # what is kept from the first time on costs nothing later
    once, twice, thrice = (work(number * times) for times in (1, 2, 3))
    # Each third of the things costs as much as the other, 5/3 as much where the work is quadratic.
    assert thrice - twice < 1.1 * (twice - once), (once, twice, thrice)
