"""Paths of the command and of the reader, and the removal of the reader."""

from __future__ import annotations

from components.node import files, systemd

COMMAND = "/usr/local/bin/sll"
SOCKET, SERVICE = "tailrack-live.socket", "tailrack-live.service"
READER = "/usr/local/lib/tailrack/live-reader"


def remove_reader() -> None:
    """Remove the reader and its units."""
    systemd.retire(SOCKET, SERVICE)
    files.remove(READER)
