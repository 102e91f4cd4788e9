"""Wait until something is true, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat

# Most waits end within a second, and a step waits a dozen times: so the first pauses are short.
_FIRST_PAUSES = (0.1, 0.2, 0.2, 0.2, 0.2)
_PAUSE = 0.5


def now() -> float:
    """Return the seconds of a clock that nobody sets."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Do nothing for a number of seconds."""
    time.sleep(seconds)


def pauses(longest: float = _PAUSE) -> Iterator[float]:
    """Yield the seconds between two attempts."""
    return chain(_FIRST_PAUSES, repeat(longest))


def wait_until(condition: Callable[[], bool], seconds: float, longest: float = _PAUSE) -> bool:
    """Call a function until it returns True. Return whether that happened within a number of seconds.

    longest   seconds between later calls
    """
    end = time.monotonic() + seconds
    for pause in pauses(longest):
        if condition():
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
    return False
