"""Progress lines on stderr; stdout is for the one JSON line."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print one progress line."""
    print(f"lab {text}", file=sys.stderr, flush=True)


@contextmanager
def timed(text: str) -> Iterator[None]:
    """Print `text` before, and again with the seconds it took after, the block."""
    say(f"{text} ...")
    start = time.monotonic()
    yield
    say(f"{text} ... {time.monotonic() - start:.0f} s")
