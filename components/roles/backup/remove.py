"""Stop making backups; existing ones stay at the target."""

from __future__ import annotations

from components.node import files, systemd
from components.node.step.step import STATE_DIR

FOLDER = "/etc/tailrack/backup"
SERVICE, TIMER = "tailrack-backup.service", "tailrack-backup.timer"
# The times of the last backup and failure.
RECORD = f"{STATE_DIR}/backup-state"


def remove_backup() -> None:
    """Remove the program with its settings and its copy of the state."""
    systemd.retire(TIMER, SERVICE)
    for path in (FOLDER, "/var/cache/tailrack-backup", RECORD, f"{STATE_DIR}/backup-stage"):
        files.remove_folder(path)
    files.remove("/usr/local/sbin/tailrack-backup")
