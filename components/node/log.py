"""The log of a step: its stderr. People see the last lines after a failure."""

from __future__ import annotations

import sys
import time


def note(text: str) -> None:
    """Write a line to the log."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()
