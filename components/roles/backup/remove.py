"""Stop making backups; existing ones stay at the target."""

from __future__ import annotations

from components.node import files, systemd
from components.node.step.step import STATE_DIR

FOLDER = "/etc/tailrack/backup"
SERVICE, TIMER = "tailrack-backup.service", "tailrack-backup.timer"
# The program that saves the users' homes, its unit, its settings and its record.
HOMES_PROGRAM, HOMES_SERVICE = "/usr/local/lib/tailrack/backup-homes", "tailrack-backup-homes.service"
HOMES_SETTINGS, HOMES_RECORD = f"{FOLDER}/homes.json", f"{STATE_DIR}/backup-homes-state"
# The digest of the list of files in each home at its last backup.
HOMES_LISTS = f"{STATE_DIR}/backup-homes-lists"
# The times of the last backup and failure.
RECORD = f"{STATE_DIR}/backup-state"


def remove_backup() -> None:
    """Remove the program with its settings and its copy of the state."""
    remove_homes()
    systemd.retire(TIMER, SERVICE)
    for path in (FOLDER, "/var/cache/tailrack-backup", RECORD, f"{STATE_DIR}/backup-stage"):
        files.remove_folder(path)
    files.remove("/usr/local/sbin/tailrack-backup")


def remove_homes() -> None:
    """Stop saving the users' homes; existing backups of them stay at the target."""
    systemd.retire(HOMES_SERVICE)
    for path in (HOMES_PROGRAM, HOMES_SETTINGS, HOMES_RECORD, HOMES_LISTS):
        files.remove(path)
