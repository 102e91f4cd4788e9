"""Compare this machine's clock with another's.

munge rejects credentials that are five minutes off, programs compare times on the share, and with a clock far off no
certificate or package is valid.
"""

from __future__ import annotations

import socket
import time
from email.utils import parsedate_to_datetime

from components.node.failure import Failure
from components.node.log import note
from components.roles.clock.service import remedy
from components.roles.tailnet.tailscale import status_of_all

# Allowed difference from the head node's clock in seconds. A working time service stays within one.
HEAD_LIMIT = 10
_ANSWER_SECONDS = 5
_MOST_BYTES = 65536


def http_time(host: str, port: int) -> float | None:
    """Return a server's time in seconds since 1970, from its unencrypted answer; None if it sends none."""
    try:
        with socket.create_connection((host, port), _ANSWER_SECONDS) as connection:
            connection.sendall(f"HEAD / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            answer = _read(connection)
    except OSError:
        return None
    for line in answer.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            try:
                return parsedate_to_datetime(value.strip()).timestamp()
            except (ValueError, TypeError):
                return None
    return None


def _read(connection: socket.socket) -> str:
    """Read an answer to its end, within the time and size that a server may take."""
    end = time.monotonic() + _ANSWER_SECONDS
    parts = b""
    while len(parts) < _MOST_BYTES and time.monotonic() < end and (part := connection.recv(4096)):
        parts += part
    return parts.decode("latin-1")


def require_clock(other: float, limit: int, whose: str, host: str) -> None:
    """Raise Failure if this clock differs from another by more than a limit in seconds. `whose`: the other clock."""
    difference = round(time.time() - other)
    note(f"the clock is {abs(difference)}s from {whose}")
    if abs(difference) > limit:
        direction = "behind" if difference < 0 else "ahead of"
        raise Failure(
            f"the clock here is {abs(difference)}s {direction} {whose}", f"{remedy(other, host)}; then run up again"
        )


def compare_with_head(head_address: str, host: str) -> None:
    """Compare a node's clock with the head node's.

    The head node's tailscaled answers HTTP at an address that `tailscale status` shows.
    """
    port = _port_of_tailscaled(head_address)
    head_time = http_time(head_address, port) if port else None
    if head_time is None:
        note(f"the head node sends no time at {head_address}; clocks are not compared")
    else:
        require_clock(head_time, HEAD_LIMIT, "the head node's", host)


def _port_of_tailscaled(address: str) -> int | None:
    peers = ((status_of_all() or {}).get("Peer") or {}).values()
    start = f"http://{address}:"
    for url in (url for peer in peers for url in peer.get("PeerAPIURL") or ()):
        port = str(url).removeprefix(start).rstrip("/")
        if str(url).startswith(start) and port.isdigit():
            return int(port)
    return None
