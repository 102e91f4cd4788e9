"""Wait until something is true, with a limit."""

import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import TypeVar

T = TypeVar("T")

# Most waits end within a second, and a step waits a dozen times: so the first pauses are short.
_FIRST_PAUSES = (0.1, 0.2, 0.2, 0.2, 0.2)
_PAUSE = 0.5


def now() -> float:
    """Return the seconds of a clock that never jumps."""
    return time.monotonic()


def within(seconds: float, earlier: float, later: float) -> bool:
    """Return whether a time of the wall clock is less than so many seconds after another one.

    It is not if it comes before the other: then one of them is of a clock that was wrong, so nothing may wait for it.
    """
    return 0 <= later - earlier < seconds


def sleep(seconds: float) -> None:
    """Do nothing for a number of seconds."""
    time.sleep(seconds)


def pauses(longest: float = _PAUSE) -> Iterator[float]:
    """Yield the seconds between two attempts."""
    return chain(_FIRST_PAUSES, repeat(longest))


def wait_for(find: Callable[[], T | None], seconds: float, longest: float = _PAUSE) -> T | None:
    """Call a function until it returns something. Return that, or None after a number of seconds.

    longest   seconds between later calls
    """
    end = time.monotonic() + seconds
    for pause in pauses(longest):
        if (found := find()) is not None:
            return found
        if time.monotonic() >= end:
            return None
        time.sleep(pause)
    return None


def wait_until(condition: Callable[[], bool], seconds: float, longest: float = _PAUSE) -> bool:
    """Call a function until it returns True. Return whether that happened within a number of seconds.

    longest   seconds between later calls
    """
    return wait_for(lambda: condition() or None, seconds, longest) is not None
