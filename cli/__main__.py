"""`python -m cli`: the commands of cli/commands.py."""

from __future__ import annotations

import signal
import sys


def run() -> int:
    """Import what the commands need, which takes a second, and run one; return the exit status."""
    # An interrupt meanwhile just ends it. One that is ignored, as in the background of a script, stays so.
    takes_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if takes_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.commands import main

    if takes_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(run())
