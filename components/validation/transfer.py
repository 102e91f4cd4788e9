"""1 MiB to another machine and back: what only a transfer shows of a network, where pings and small messages pass.

A path whose MTU is smaller than its ends believe loses everything longer, and says nothing.
"""

from __future__ import annotations

import contextlib
import socket
import time

BYTES = 2**20
# Without a byte that moves.
STALL_SECONDS = 10.0


def there_and_back(connection: socket.socket, data: bytes, deadline: float) -> bytes:
    """Send data, and return as much as came back; all of it by a moment of the monotonic clock."""
    rest = memoryview(data)
    with contextlib.suppress(OSError):
        while rest:
            _wait_until(connection, deadline)
            rest = rest[connection.send(rest[: 2**16]) :]
    return take(connection, len(data), deadline)


def give_back(connection: socket.socket, deadline: float) -> None:
    """Take 1 MiB and send it back; nothing where less comes. OSError where nobody takes it."""
    if len(data := take(connection, BYTES, deadline)) == BYTES:
        connection.sendall(data)


def take(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Return so many bytes, or those that came before nothing moved any more."""
    data = bytearray()
    with contextlib.suppress(OSError):
        while len(data) < count:
            _wait_until(connection, deadline)
            if not (more := connection.recv(min(count - len(data), 2**16))):
                break
            data += more
    return bytes(data)


def _wait_until(connection: socket.socket, deadline: float) -> None:
    connection.settimeout(max(min(deadline - time.monotonic(), STALL_SECONDS), 1e-3))
