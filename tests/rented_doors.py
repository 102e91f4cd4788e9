"""Machines of the played cloud without Docker: an SSH greeting at an address of the loopback network, port 22."""

import errno
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.played_cloud.account import Account, Machine
from tests.played_cloud.server import READ, WRITE, PlayedCloud, serve

API_KEY, READ_ONLY_KEY = "secret_played_cloud_writes.abc123", "secret_played_cloud_reads.abc123"
TYPE, OTHER_TYPE, EAST, WEST = "gpu_1x_played", "gpu_8x_played", "us-east-1", "us-west-2"
_NEXT = itertools.count(2)


class Doors:
    """Each machine greets at 127.9.x.y until it is removed. `silent`: the next ones do not."""

    def __init__(self) -> None:
        self.silent = 0
        self._sockets: dict[str, socket.socket] = {}

    def start(self, machine: Machine, *, own_host_key: bool) -> str:
        """Open a door."""
        door, address = _free_address()
        self._sockets[machine.id] = door
        if self.silent:
            self.silent -= 1
        else:
            door.listen()
            threading.Thread(target=_greet, args=[door], daemon=True).start()
        return address

    def restart(self, machine: Machine) -> None:
        """Do nothing: a door is not a machine."""

    def remove(self, machine: Machine) -> None:
        """Close a door."""
        if door := self._sockets.pop(machine.id, None):
            door.close()


def _free_address() -> tuple[socket.socket, str]:
    """Return a socket at an address that no other process of the tests has."""
    while True:
        number = next(_NEXT)
        address = f"127.9.{number // 250}.{number % 250 + 1}"
        door = socket.socket()
        try:
            door.bind((address, 22))
        except OSError as error:
            door.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return door, address


def _greet(door: socket.socket) -> None:
    while True:
        try:
            visitor, _ = door.accept()
        except OSError:
            return
        with visitor:
            visitor.sendall(b"SSH-2.0-door\r\n")


@contextmanager
def played_cloud() -> Iterator[PlayedCloud]:
    """A played cloud with four free machines in one region, and a key that may only read."""
    account = Account(Doors(), {TYPE: 129, OTHER_TYPE: 2392})
    account.capacity = {(TYPE, EAST): 4}
    with serve(PlayedCloud(account, {API_KEY: WRITE, READ_ONLY_KEY: READ})) as cloud:
        yield cloud
