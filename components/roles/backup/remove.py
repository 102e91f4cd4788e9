"""Stop making backups; existing ones stay at the target."""

from __future__ import annotations

from components.node import files, systemd
from components.node.step.step import STATE_DIR
from components.roles.backup.restic import CACHE

FOLDER = "/etc/tailrack/backup"
SERVICE, TIMER = "tailrack-backup.service", "tailrack-backup.timer"
PROGRAM = "/usr/local/sbin/tailrack-backup"
# The unit that saves the users' homes, its settings and its record.
HOMES_SERVICE = "tailrack-backup-homes.service"
HOMES_SETTINGS, HOMES_RECORD = f"{FOLDER}/homes.json", f"{STATE_DIR}/backup-homes-state"
# The times of the last backup and failure; the copy of the state that is being saved.
RECORD, STAGE = f"{STATE_DIR}/backup-state", f"{STATE_DIR}/backup-stage"


def remove_backup() -> None:
    """Remove the program with its settings and its copy of the state."""
    remove_homes()
    systemd.retire(TIMER, SERVICE)
    for path in (FOLDER, CACHE, RECORD, STAGE):
        files.remove_folder(path)
    files.remove(PROGRAM)


def remove_homes() -> None:
    """Stop saving the users' homes; existing backups of them stay at the target."""
    systemd.retire(HOMES_SERVICE)
    for path in (HOMES_SETTINGS, HOMES_RECORD):
        files.remove(path)
