"""The SSH authorities that this machine trusts.

The list has a line `# NUMBER`, one line per key, then a line `# leave KEY` with the head node's key for tailrack-leave.
During a change there are two of each (turn.py). The number grows with each change, so a delayed older list is ignored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from components.node import files
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.program import run_program
from components.roles.pod.saved import save_again

AUTHORITIES = "/etc/ssh/tailrack_authority.pub"
# The only keys with which the head node can log in as root.
LEAVE_KEY_FILE = "/etc/ssh/tailrack_leave_key"
# Prefix of the key with which the head node asks a machine to leave.
LEAVE = "# leave "
LEAVE_PROGRAM = "/usr/local/sbin/tailrack-leave"

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}"
_SOUND = re.compile(rf"# ([1-9][0-9]{{0,17}})(\n{_KEY}){{1,3}}(\n{LEAVE}{_KEY}){{1,2}}")
_LOCK_SECONDS = 60
_MOST = 2048


def main(arguments: Sequence[str]) -> int:
    """Answer the head node, and return the exit status.

    Trust the authorities and the leave key that it has, from stdin, and no others from then on.
    """
    text = sys.stdin.read(_MOST).rstrip("\n")
    if not is_sound(text):
        sys.stderr.write("this is no list of authorities\n")
        return 1
    return run_program("", lambda: _follow(text))


def _follow(text: str) -> None:
    before = re.match('restrict,from="([^"]+)"', files.read(LEAVE_KEY_FILE) or "")
    if not before:
        raise Failure(f"{LEAVE_KEY_FILE} does not name the head node's address")
    take(text)
    let_ask(before[1])
    save_again()


def is_sound(text: str) -> bool:
    """Return whether a text is a list of authorities."""
    return bool(_SOUND.fullmatch(text))


def number() -> int:
    """Return the number of the current list; 0 without one."""
    first = re.fullmatch("# ([0-9]+)", next(iter(files.lines(AUTHORITIES)), ""))
    return int(first[1]) if first else 0


def take(text: str) -> None:
    """Store a sound list if its number is higher than the current one."""
    sound = _SOUND.fullmatch(text)
    with _lock():
        if sound and int(sound[1]) > number():
            files.write(AUTHORITIES, text)


def let_ask(address: str) -> None:
    """Authorize requests from an address.

    They are the leave keys for tailrack-leave, and certificates that an authority signed for tailrack-ask.
    """
    options = f'restrict,from="{address}"'
    ask = 'cert-authority,principals="tailrack-ask",command="/usr/local/sbin/tailrack-answer"'
    with _lock():
        lines = files.lines(AUTHORITIES)
        leave = (line.removeprefix(LEAVE) for line in lines if line.startswith(f"{LEAVE}ssh-"))
        keys = [f'{options},command="{LEAVE_PROGRAM}" {key} tailrack-leave' for key in leave]
        keys += [f"{options},{ask} {line} tailrack-ask" for line in lines if line.startswith("ssh-")]
        files.write(LEAVE_KEY_FILE, "\n".join(keys))


def _lock() -> Lock:
    """Return the lock for both files: a step and a request of the head node may arrive at the same time."""
    return Lock("authorities", seconds=_LOCK_SECONDS)
