"""`python -m cli`: the commands of cli/commands.py."""

import signal
import sys


def run() -> int:
    """Import the commands, which takes a second, run one, and return the exit status."""
    # Ctrl-C during the import ends the program without a traceback. An ignored SIGINT, as in a script's background
    # job, stays ignored.
    takes_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if takes_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.commands import main

    if takes_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(run())
