"""The list of names that the head node publishes on the share, and this machine's copy of it."""

from __future__ import annotations

import os
from threading import Thread

from components.node import files
from components.node.state import STATE_DIR
from components.roles.names.hosts import members
from components.roles.names.names import LIST, first_line

# The file that contains the path of the published list. The head node has none.
SOURCE = f"{STATE_DIR}/names-from"
# The list's largest size in bytes, enough for tens of thousands of machines.
_MOST_BYTES = 4194304
_LIMIT_SECONDS = 20


class Published:
    """The published list.

    A read hangs while the share is away, so a thread reads it, and the process can end all the same.
    """

    def __init__(self) -> None:
        self._reader: Thread | None = None
        self._data: bytes | None = None
        # The last published list, if it contained no more valid lines than the list here.
        self._refused = b""

    def fetch(self) -> None:
        """Copy the published list to this machine. While the share is away, keep the last copy."""
        source = first_line(SOURCE)
        data = self._read(source) if source else None
        if data is None or data == self._refused:
            return
        present = files.read(LIST) or ""
        text = data.decode("utf-8", "surrogateescape").rstrip("\n")
        if f"{text}\n" == present:
            return
        fresh = "".join(f"{machine.address} {machine.name}\n" for machine in members(text))
        if fresh == present:
            # The rest of the list is invalid; remember that.
            self._refused = data
        elif fresh:
            files.write(LIST, fresh)

    def _read(self, path: str) -> bytes | None:
        if self._reader and self._reader.is_alive():
            return None
        self._data = None
        self._reader = Thread(target=self._take, args=(path,), daemon=True)
        self._reader.start()
        self._reader.join(_LIMIT_SECONDS)
        return None if self._reader.is_alive() else self._data

    def _take(self, path: str) -> None:
        # The text is checked (members). An NFS client may show another owner for root's file, which `files` refuses.
        try:
            with open(files.on_disk(path), "rb", opener=_open) as file:
                self._data = file.read(_MOST_BYTES)
        except OSError:
            pass


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
