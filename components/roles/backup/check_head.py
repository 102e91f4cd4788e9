"""Check that the backup's target answers, before anything is changed. The services step checks it with the keys."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step

_CONNECT_SECONDS = 15


@dataclass(frozen=True)
class TargetAddress:
    """The address of a machine, or of S3; empty without backups."""

    backup_host: str
    backup_port: str
    backup_s3_host: str
    backup_s3_port: str


def check_head(step: Step, values: TargetAddress) -> None:
    """Connect to the target."""
    host, port = values.backup_host or values.backup_s3_host, values.backup_port or values.backup_s3_port
    if not host:
        return
    try:
        socket.getaddrinfo(host, int(port))
    except OSError:
        if values.backup_s3_host or "." in host:
            raise Failure(
                f"cannot resolve the backup's target {host}",
                f"set tailrack:backup.target to a name that {step.host} can resolve, or to an address, then run up "
                "again",
            ) from None
        note(f"{host} does not resolve yet; it may be a node's name")
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError:
        raise Failure(
            f"the backup's target {host} does not answer at port {port}",
            f"check that it is running and accepts connections from {step.host}, or correct tailrack:backup; then run "
            "up again",
        ) from None
