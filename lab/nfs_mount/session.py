"""A server, and the connections to it: one for each identity, each kept up until its calls are answered."""

import ctypes
import errno
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from .caller import Identity
from .errors import Busy, Lost, failure

T = TypeVar("T")

LOOK_S = 1.0
"""How often a call that waits looks whether its caller was killed, and the longest pause between two connections."""

CALL_LIMIT_MS = 20_000
"""A request not answered for this long is sent again over a new connection."""

MAX_GROUPS = 16
"""AUTH_SYS carries no more supplementary groups."""


class Server:
    """The server and its export; every session goes to the one address its name had first."""

    def __init__(self, name: str, export: str) -> None:
        """Prepare for the server called `name` and its `export`; the name is resolved when it is needed."""
        self.name, self.export = name, export

    @cached_property
    def address(self) -> str:
        """Return the server's IPv4 address (exports name those); raises Lost while it has none."""
        try:
            addresses = socket.getaddrinfo(self.name, 2049, socket.AF_INET, socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise Lost(f"cannot resolve {self.name}: {error.strerror}") from error
        return str(addresses[0][4][0])


@dataclass
class Handle:
    """An open file: enough to open it again on a new connection."""

    session: "Session"
    path: bytes
    flags: int
    pointer: ctypes.c_void_p
    generation: int
    dirty: bool = False


class Session:
    """The connection of one identity. Calls take turns; each is repeated until the server has answered it."""

    def __init__(
        self,
        lib: ctypes.CDLL,
        server: Server,
        identity: Identity,
        killed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare a session of `identity` with `server`; the first call connects it.

        `killed` says whether the process that made the present call was killed.
        """
        self.lib, self.server, self.identity, self.killed = lib, server, identity, killed
        self._lock = threading.RLock()
        self.context: ctypes.c_void_p | None = None
        self.generation = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have the connection for oneself. Raises OSError (EINTR) when the caller is killed before."""
        while not self._lock.acquire(timeout=LOOK_S):
            self._end_with_caller()
        try:
            yield
        finally:
            self._lock.release()

    def run(self, action: Callable[[], T], *, repeated_error: int = 0, limit_s: float = math.inf) -> T | None:
        """Return the result of `action`; connect first if needed, and again when the connection is lost.

        As with a kernel's hard mount, that goes on until the server answers or the caller is killed. A repetition may
        find its own first try done: then `repeated_error` is the error it gets, and None is returned. Raises OSError:
        the server's answer, EINTR for a caller that was killed, or EIO when there was no answer for `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        delay_s, repeated = 0.05, False
        with self.turn():
            while True:
                try:
                    if self.context is None:
                        self._connect()
                    return action()
                except Lost as error:
                    self._drop()
                    repeated, reason = True, error
                except Busy as error:
                    reason = error  # type: ignore[assignment]
                except OSError as error:
                    if repeated and error.errno == repeated_error:
                        return None
                    raise
                if time.monotonic() > deadline:
                    raise OSError(errno.EIO, f"{self.server.name}:{self.server.export}: {reason}")
                self._end_with_caller()
                time.sleep(delay_s)
                delay_s = min(2 * delay_s, LOOK_S)

    def call(self, name: str, *arguments: object) -> int:
        """Call one libnfs function on the connection (inside `run`) and return its result.

        Raises Lost, Busy or OSError.
        """
        result = int(getattr(self.lib, name)(self.context, *arguments))
        if result < 0:
            raise failure(result, self._error())
        return result

    def open(self, path: bytes, flags: int) -> ctypes.c_void_p:
        """Open an existing file (inside `run`) and return libnfs's handle."""
        pointer = ctypes.c_void_p()
        self.call("nfs_open", path, flags, ctypes.byref(pointer))
        return pointer

    def pointer(self, handle: Handle) -> ctypes.c_void_p:
        """Return libnfs's handle of an open file (inside `run`), opened again if the connection is a new one."""
        if handle.generation != self.generation:
            handle.pointer = self.open(handle.path, handle.flags)
            handle.generation = self.generation
        return handle.pointer

    def _end_with_caller(self) -> None:
        if self.killed():
            raise OSError(errno.EINTR, "killed")

    def _error(self) -> str:
        return (self.lib.nfs_get_error(self.context) or b"").decode(errors="replace")

    def _connect(self) -> None:
        lib = self.lib
        context = ctypes.c_void_p(lib.nfs_init_context())
        lib.nfs_set_version(context, 4)
        uid, gid, groups = self.identity
        groups = groups[:MAX_GROUPS]
        lib.nfs_set_uid(context, uid)
        lib.nfs_set_gid(context, gid)
        lib.nfs_set_auxiliary_gids(context, len(groups), (ctypes.c_uint32 * MAX_GROUPS)(*groups))
        # Two clients of one name would make the server drop the older one's files.
        name = f"{socket.gethostname()} {os.getpid()} {uid}:{gid} {os.urandom(8).hex()}"
        lib.nfs4_set_client_name(context, name.encode())
        lib.nfs4_set_verifier(context, os.urandom(8))
        # Reconnection is done here: libnfs's own keeps no open files, and it would repeat calls for ever.
        lib.nfs_set_autoreconnect(context, 0)
        lib.nfs_set_timeout(context, CALL_LIMIT_MS)
        lib.nfs_set_tcp_syncnt(context, 3)
        lib.nfs_set_dircache(context, 0)
        lib.nfs_umask(context, 0)
        self.context = context
        self.generation += 1
        try:
            self.call("nfs_mount", self.server.address.encode(), self.server.export.encode())
        except OSError:
            self._drop()
            raise

    def _drop(self) -> None:
        """Forget the connection. Its memory stays: libnfs would write to the stack of the call that was cut off."""
        if self.context is not None:
            descriptor = self.lib.nfs_get_fd(self.context)
            if descriptor >= 0:
                os.close(descriptor)
        self.context = None
