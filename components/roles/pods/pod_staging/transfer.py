"""Copy a job's folder between the head node and a pod: rsync, as the job's user on both sides.

rsync starts as root and becomes the user before it opens a path (`--copy-as`), so that only root has the key of the
connection. The pod's side may be hostile (its host is a stranger's). As the user, rsync can change nothing that a job
of this user could not change. It also ignores links that lead out of the folder, and makes no devices or set-uid files.

rsync runs the command `pod-link` in place of ssh. It sends a pod the request to run rsync too.
"""

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from components.node import run
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.run import Ended, attempt
from components.roles.access.ssh_trust.ask import NO_ANSWER, asking_key, ssh_command
from components.roles.pods.pod_staging.record import LINK, REQUEST, Record
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


def bring(record: Record, *, keep_newer: bool) -> None:
    """Bring a job's folder to its one pod. Raise TransferFailed.

    keep_newer   leave the pod's newer files alone: they are another job's results
    """
    size = as_user(record.user, "du", "-sb", "--", f"{record.folder}/", limit=_SIZE_SECONDS, most=4096)
    number = size.output.partition("\t")[0]
    if size.status == 124 or not number.isdecimal():
        raise TransferFailed(f"the head node cannot read {record.folder}, or it has too many files")
    if int(number) > MOST_BYTES:
        raise TransferFailed(_too_large(int(number)))
    newer = ["--update"] if keep_newer else []
    source, target = f"{record.folder}/", f"{record.node}:{record.folder}/"
    _check(_rsync(record, IN_SECONDS, "--mkpath", *newer, source, target), record, "the pod", IN_SECONDS)


def fetch(record: Record) -> None:
    """Bring newer files of a job's folder back from its one pod. Raise TransferFailed."""
    source, target = f"{record.node}:{record.folder}/", f"{record.folder}/"
    safe = ("--update", "--safe-links", "--chmod=ug-s")
    trial = _rsync(record, OUT_SECONDS, *safe, "--dry-run", "--stats", source, target)
    _check(trial, record, "the share", OUT_SECONDS)
    size = _SENT.search(trial.output)
    if size and int(size[1].replace(",", "")) > MOST_BYTES:
        raise TransferFailed(_too_large(int(size[1].replace(",", ""))))
    _check(_rsync(record, OUT_SECONDS, *safe, source, target), record, "the share", OUT_SECONDS)


def _too_large(size: int) -> str:
    return f"it has {size / 1e9:.0f} GB, and {MOST_BYTES / 1e9:.0f} GB can be brought"


def _rsync(record: Record, limit: int, *arguments: str) -> Ended:
    words = [
        *("prlimit", f"--fsize={MOST_BYTES}", "rsync", "-rlpt", "--secluded-args"),
        *(f"--copy-as={record.user}", f"-M--copy-as={record.user}", "-e", LINK),
        *arguments,
    ]
    with asking_key() as key:
        values = json.dumps({"key": key, "node": record.node, "job": record.job})
        return attempt(*words, limit=limit, environment={LINK_VALUES: values}, keep_errors=True)


def _check(ended: Ended, record: Record, receiver: str, limit: int) -> None:
    if ended.status in (0, _VANISHED):
        return
    errors = [line for line in ended.errors.splitlines() if line]
    if _FULL.search(ended.errors):
        raise TransferFailed(f"{receiver} has no room for it")
    if ended.status == _LATE:
        raise TransferFailed(f"it did not arrive within {limit} s")
    if ended.status in _LOST:
        raise TransferFailed(f"the connection to {record.node} was lost or refused")
    raise TransferFailed(f"rsync reports: {plain(errors[0])[:200]}" if errors else f"rsync ended with {ended.status}")


def link(arguments: Sequence[str]) -> int:
    """Connect rsync with the pod. rsync passes the pod's name, `rsync`, and the arguments of the pod's rsync."""
    values = json.loads(os.environ[LINK_VALUES])
    try:
        command = ssh_command(values["key"], values["node"], REQUEST)
    except Failure as failure:
        sys.stderr.write(f"{failure.reason}\n")
        return NO_ANSWER
    header = json.dumps({"job": values["job"], "arguments": list(arguments[2:])})
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PATH": run.PATH})
    if process.stdin is None:
        return NO_ANSWER
    with suppress(BrokenPipeError), process.stdin:
        target = process.stdin.fileno()
        _write(target, f"{header}\n".encode())
        _pass_on(target)
    return process.wait()


def _pass_on(target: int) -> None:
    """Pass stdin on until one of the two ends. rsync waits for the end of this program before it closes stdin."""
    poller = select.poll()
    poller.register(0, select.POLLIN)
    # Without an event, poll reports only that the other end has closed.
    poller.register(target, 0)
    while target not in dict(poller.poll()):
        data = os.read(0, 1 << 17)
        if not data:
            return
        _write(target, data)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
