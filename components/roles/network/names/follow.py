"""Write the names whenever something changes.

A message of tailscaled is only a reason to check: a new machine is in the head node's list some seconds later. So check
again at growing intervals, and every two seconds while there is no list. Most checks find nothing new: a joining
machine gets dozens of messages.
"""

from __future__ import annotations

import os
import select
from os import uname
from typing import IO

from components.node import files, run, waiting
from components.roles.network.names.names import HOST_NAME, LIST, Published, interface_address, read_hosts, write_names

# Seconds until the published list is read again: at first, and at most.
_SOON = 2
_LATE = 30
# A message has many lines, and more messages follow soon.
_PAUSE = 1
_MOST_BYTES = 65536


def follow() -> int:
    """Follow the list until tailscaled's output ends."""
    messages = run.reading("tailscale", "debug", "watch-ipn").stdout
    assert messages  # noqa: S101 for mypy: it is a pipe
    published, previous, wait = Published(), None, _SOON
    while True:
        published.fetch()
        inputs = _inputs()
        # This program's own changes appear in the next check, and changes by others in the meantime are not missed.
        if inputs != previous:
            previous = inputs
            write_names()
        if not inputs[1]:
            wait = _SOON
        if not _is_ready(messages, wait):
            wait = min(2 * wait, _LATE)
            continue
        if not os.read(messages.fileno(), _MOST_BYTES):
            return 1
        wait = _SOON
        waiting.sleep(_PAUSE)
        while _is_ready(messages, 0) and os.read(messages.fileno(), _MOST_BYTES):
            pass


def _inputs() -> tuple[str, ...]:
    """Return all inputs of `write_names`, and its results."""
    return interface_address(), files.read(LIST) or "", read_hosts(), files.read(HOST_NAME) or "", uname().nodename


def _is_ready(messages: IO[bytes], seconds: float) -> bool:
    return bool(select.select([messages], [], [], seconds)[0])
