"""Copy a job's folder between the head node and a pod: rsync, as the job's user on both sides.

rsync starts as root and becomes the user before it opens a path (`--copy-as`), so that only root has the key of the
connection. The pod's side may be hostile (its host is a stranger's). As the user, rsync can change nothing that a job
of this user could not change. It also ignores links that lead out of the folder, and makes no devices or set-uid files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from components.node.accounts import as_user
from components.node.run import Ended, attempt
from components.roles.pod_staging.paths import LINK
from components.roles.ssh_trust.ask import asking_key
from components.validation.preflight.findings import plain

# Slurm ends the program that waits for a job's folder after 120 s (PrologEpilogTimeout, role health).
IN_SECONDS, OUT_SECONDS = 100, 1800
MOST_BYTES = 20 * 10**9
_SIZE_SECONDS = 30
_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large", re.IGNORECASE)
_SENT = re.compile(r"^Total transferred file size: ([0-9,]+) bytes", re.MULTILINE)
# The statuses of rsync if files vanish meanwhile, and if the connection or the other side is lost. The connection ends
# 15 s after the pod has fallen silent.
_VANISHED, _LATE = 24, 124
_LOST = (5, 10, 12, 255)
LINK_VALUES = "TAILRACK_POD_LINK"


class TransferFailed(Exception):
    """A folder did not arrive. The text says why, in words for the user."""


@dataclass(frozen=True)
class Folder:
    """A user's folder, at the same path on the head node and on a pod. `job`: the job that uses it."""

    node: str
    user: str
    path: str
    job: int


def bring(folder: Folder, *, keep_newer: bool) -> None:
    """Bring a folder to the pod. Raise TransferFailed.

    keep_newer   leave the pod's newer files alone: they are another job's results
    """
    size = as_user(folder.user, "du", "-sb", "--", f"{folder.path}/", limit=_SIZE_SECONDS, most=4096)
    number = size.output.partition("\t")[0]
    if size.status == 124 or not number.isdecimal():
        raise TransferFailed(f"the head node cannot read {folder.path}, or it has too many files")
    if int(number) > MOST_BYTES:
        raise TransferFailed(_too_large(int(number)))
    newer = ["--update"] if keep_newer else []
    source, target = f"{folder.path}/", f"{folder.node}:{folder.path}/"
    _check(_rsync(folder, IN_SECONDS, "--mkpath", *newer, source, target), folder, "the pod", IN_SECONDS)


def fetch(folder: Folder) -> None:
    """Bring a folder's newer files back. Raise TransferFailed."""
    source, target = f"{folder.node}:{folder.path}/", f"{folder.path}/"
    safe = ("--update", "--safe-links", "--chmod=ug-s")
    trial = _rsync(folder, OUT_SECONDS, *safe, "--dry-run", "--stats", source, target)
    _check(trial, folder, "the share", OUT_SECONDS)
    size = _SENT.search(trial.output)
    if size and int(size[1].replace(",", "")) > MOST_BYTES:
        raise TransferFailed(_too_large(int(size[1].replace(",", ""))))
    _check(_rsync(folder, OUT_SECONDS, *safe, source, target), folder, "the share", OUT_SECONDS)


def _too_large(size: int) -> str:
    return f"it has {size / 1e9:.0f} GB, and {MOST_BYTES / 1e9:.0f} GB can be brought"


def _rsync(folder: Folder, limit: int, *arguments: str) -> Ended:
    words = [
        *("prlimit", f"--fsize={MOST_BYTES}", "rsync", "-rlpt", "--secluded-args"),
        *(f"--copy-as={folder.user}", f"-M--copy-as={folder.user}", "-e", LINK),
        *arguments,
    ]
    with asking_key() as key:
        values = json.dumps({"key": key, "node": folder.node, "job": folder.job})
        return attempt(*words, limit=limit, environment={LINK_VALUES: values}, keep_errors=True)


def _check(ended: Ended, folder: Folder, receiver: str, limit: int) -> None:
    if ended.status in (0, _VANISHED):
        return
    errors = [line for line in ended.errors.splitlines() if line]
    if _FULL.search(ended.errors):
        raise TransferFailed(f"{receiver} has no room for it")
    if ended.status == _LATE:
        raise TransferFailed(f"it did not arrive within {limit} s")
    if ended.status in _LOST:
        raise TransferFailed(f"the connection to {folder.node} was lost or refused")
    raise TransferFailed(f"rsync reports: {plain(errors[0])[:200]}" if errors else f"rsync ended with {ended.status}")
