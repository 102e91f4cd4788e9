"""What a program of a thousand hosts does not need, and would pay for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def tuned_runtime() -> Iterator[None]:
    """While resources are made: seldom look for garbage, and keep no record of where in the program each was made."""
    # Next to nothing that a stack makes is garbage before its end. To look for some after each 700 new objects took two
    # fifths of the time of a thousand hosts.
    gc.set_threshold(100_000)
    # The runtime finds no place in so short a stack. The places would be a fifth of the state, which the CLI writes
    # twice a step, and help nobody who edits a config.
    sys.tracebacklimit = 1
    try:
        yield
    finally:
        del sys.tracebacklimit
