"""Folders of tailrack on a machine, the log of a step (its stderr), and text that is safe to show.

People see the last lines of the log after a failure.
"""

import sys
import time

# Records of what tailrack made on this machine, and logs of steps.
STATE_DIR = "/var/lib/tailrack"
LOG_DIR = "/var/log/tailrack"


def note(text: str) -> None:
    """Write a line to the log."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def printable(text: str, most: int) -> str:
    """Return the printable ASCII characters of a program's untrusted text, up to a number of them."""
    return "".join(letter for letter in text if " " <= letter <= "~")[:most]
