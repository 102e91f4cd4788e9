"""Back up the head node to a target: check it, install an hourly timer, and make the first backup now."""

import socket

from components.node import files, systemd
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.storage.backup.homes import FOLDER, HOMES_RECORD, HOMES_SERVICE, HOMES_SETTINGS, write_settings
from components.roles.storage.backup.program import RECORD, STAGE, record
from components.roles.storage.backup.restic import CACHE, last_reason, restic
from components.roles.storage.backup.target import (
    CHECK_SECONDS,
    TargetValues,
    check_target,
    close_target,
    try_target,
    write_target,
)

# The keys of a target that is not checked yet.
_KEYS = f"{PRIVATE}/backup"
_LIB = "/usr/local/lib/tailrack"
_CONNECT_SECONDS = 15
SERVICE, TIMER = "tailrack-backup.service", "tailrack-backup.timer"
# Existing backups stay at the target.
MADE, HOMES_MADE = (FOLDER, CACHE, RECORD, STAGE), (HOMES_SETTINGS, HOMES_RECORD)


def services(
    step: Step,
    values: TargetValues,
    backup_state: list[str],
    backup_homes_max_gb: int,
    backup_homes_exclude: list[str],
) -> None:
    """Check the target, and make a backup there.

    backup_state           files and folders to save
    backup_homes_max_gb    0 if users' homes are not saved
    backup_homes_exclude   patterns of files in homes to leave out
    """
    _prepare(values)
    write_target(FOLDER, values)
    files.write(f"{FOLDER}/state", "\n".join(backup_state), 0o600)
    if backup_homes_max_gb:
        write_settings(f"{values.share_path}/home", backup_homes_max_gb, backup_homes_exclude)
        systemd.reload(HOMES_SERVICE)
    else:
        # The backup below would save the homes once more.
        files.remove(HOMES_SETTINGS)
    for folder in (_LIB, f"{_LIB}/backup.d"):
        files.make_folder(folder)
    systemd.reload(SERVICE, TIMER)
    if not attempt("systemctl", "reset-failed", SERVICE).ok:
        note("it had not failed")
    if not attempt("systemctl", "start", SERVICE).ok:
        raise Failure(
            f"the first backup failed: {record(RECORD).get('reason', '')}",
            f"see 'journalctl -u tailrack-backup' on {step.host}, then run up again",
        )
    systemd.enable(TIMER, now=True)
    if backup_homes_max_gb and (reason := record(HOMES_RECORD).get("reason")):
        note(f"the homes are not in the last backup: {reason}")
    step.result("backup_made", int(record(RECORD).get("done", 0)) or None)


def _prepare(values: TargetValues) -> None:
    """Check the target, and create a repository if it has none."""
    files.remove_folder(_KEYS)
    write_target(_KEYS, values)
    try:
        if not check_target(_KEYS, values):
            ended = restic(_KEYS, "init", limit=CHECK_SECONDS)
            if not ended.ok:
                raise Failure(
                    f"cannot create a backup repository at the target: {last_reason(ended.errors)}",
                    "make room there, or check that the account or key in tailrack:backup may write there; then run "
                    "up again",
                )
            close_target(_KEYS, values)
        try_target(_KEYS)
    finally:
        files.remove_folder(_KEYS)


def check_head(step: Step, backup_host: str, backup_port: str, backup_bucket: str) -> None:
    """Check that the target answers, before anything is changed. The services step checks it with the keys."""
    host, port = backup_host, backup_port
    try:
        socket.getaddrinfo(host, int(port))
    except OSError:
        if backup_bucket or "." in host:
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
