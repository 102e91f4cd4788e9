"""Send 1 MiB to another machine and back, to detect faults that pings and small messages miss.

A path with a smaller MTU than its ends assume drops all longer packets without an error.
"""

from __future__ import annotations

import contextlib
import socket
import time

BYTES = 2**20
# Limit without any progress.
STALL_SECONDS = 10.0


def there_and_back(connection: socket.socket, data: bytes, deadline: float) -> bytes:
    """Send data and return what came back, until a time of the monotonic clock."""
    rest = memoryview(data)
    with contextlib.suppress(OSError):
        while rest:
            _wait_until(connection, deadline)
            rest = rest[connection.send(rest[: 2**16]) :]
    return take(connection, len(data), deadline)


def give_back(connection: socket.socket, deadline: float) -> None:
    """Receive 1 MiB and send it back; send nothing if less arrives. Raises OSError if it cannot be sent."""
    if len(data := take(connection, BYTES, deadline)) == BYTES:
        connection.sendall(data)


def take(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Return `count` bytes, or those that arrived before the transfer stalled."""
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
