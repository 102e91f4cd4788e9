"""Run daemons that answer HTTP.

Check that the port is free, restart a daemon if its files changed, and wait for an answer.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import STATE_DIR, printable
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_until

# Seconds for a daemon to answer: some first replay their log.
ANSWER_SECONDS = 120
_REQUEST_SECONDS, _START_SECONDS = 10, 20
# Prometheus crashes with less room, with a stack trace that does not mention the disk.
_LEAST_ROOM = 16 * 2**20
_ERROR = re.compile(r"level=(error|ERROR)|^panic:|^fatal error:")
_PROGRAM = re.compile(r'"([^"]*)"')


@dataclass(frozen=True)
class Daemon:
    """A unit that answers HTTP at a path, without a login or with `name:password`.

    files   those that it reads only when it starts
    key     the config's key of its port, below `tailrack:`
    """

    unit: str
    address: str
    port: int
    path: str
    key: str
    files: Sequence[str]
    login: str = ""
    limit: float = ANSWER_SECONDS

    @property
    def name(self) -> str:
        return self.unit.removesuffix(".service")


def run_daemon(step: Step, daemon: Daemon, hold_ports: Callable[[], None]) -> None:
    """Run a daemon with the current versions of its files, and wait until it answers.

    hold_ports  called before it starts: its account may be new
    """
    systemd.reload(daemon.unit)
    systemd.enable(daemon.unit)
    if not (systemd.is_active(daemon.unit) and used_as_they_are(daemon.unit, daemon.files) and answers(daemon)):
        refuse_taken_port(step, daemon)
        hold_ports()
        attempt("systemctl", "reset-failed", daemon.unit, quiet=True)
        run("systemctl", "restart", daemon.unit)
        record_used(daemon.unit, daemon.files)
    if not wait_until(lambda: answers(daemon), daemon.limit):
        raise Failure(
            f"{daemon.name} does not answer at {daemon.address}:{daemon.port}: {_last_words(daemon)}",
            f"see 'journalctl -u {daemon.unit}' on {step.host}, then run up again",
        )


def run_service(step: Step, unit: str, paths: Sequence[str], purpose: str) -> None:
    """Run a unit with the current versions of the files that it reads when it starts, and wait until it runs."""
    systemd.reload(unit)
    systemd.enable(unit)
    if not (systemd.is_active(unit) and used_as_they_are(unit, paths)):
        attempt("systemctl", "reset-failed", unit, quiet=True)
        run("systemctl", "restart", unit)
        record_used(unit, paths)
    if not wait_until(lambda: systemd.is_active(unit), _START_SECONDS):
        raise Failure(
            f"the service that {purpose} does not start",
            f"see 'journalctl -u {unit}' on {step.host}, then run up again",
        )


def used_as_they_are(name: str, paths: Sequence[str]) -> bool:
    """Return whether a daemon has loaded these versions of its files.

    The record is in memory, so it is gone after a boot, and a run that was cut off between writing a file and the
    restart leaves none.
    """
    return files.lines(f"{PRIVATE}/used-{name}") == [_digest(paths)]


def record_used(name: str, paths: Sequence[str]) -> None:
    """Record that a daemon has loaded these versions of its files."""
    with os.fdopen(files.open_to_write(f"{PRIVATE}/used-{name}"), "w") as stream:
        stream.write(f"{_digest(paths)}\n")


def _digest(paths: Sequence[str]) -> str:
    text = "".join(files.read(path) or "" for path in paths)
    return f"{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}  -"


def answers(daemon: Daemon) -> bool:
    """Return whether a daemon answers without an error. No proxy is used, and no redirection is followed."""
    from http.client import HTTPConnection, HTTPException

    login = {"Authorization": f"Basic {base64.b64encode(daemon.login.encode()).decode()}"} if daemon.login else {}
    try:
        with closing(HTTPConnection(daemon.address, daemon.port, timeout=_REQUEST_SECONDS)) as connection:
            connection.request("GET", daemon.path, headers=login)
            return connection.getresponse().status < 400
    except (OSError, HTTPException):
        return False


def refuse_taken_port(step: Step, daemon: Daemon) -> None:
    """Raise Failure if another program listens at the daemon's port of its address."""
    pid = run("systemctl", "show", "-P", "MainPID", daemon.unit).strip() or "0"
    for line in run("ss", "-Hltnp", f"sport = :{daemon.port}").splitlines():
        words = line.split()
        if f",pid={pid}," in line or len(words) < 4:
            continue
        address = words[3].rpartition(":")[0].partition("%")[0]
        if address in (daemon.address, "*", "0.0.0.0", "[::]"):  # noqa: S104 no address to listen at
            program = _PROGRAM.search(line)
            raise Failure(
                f"port {daemon.port} is in use on {step.host} ({program[1] if program else 'another program'}), so "
                f"{daemon.name} cannot answer there",
                f"end that program ('ss -ltnp sport = :{daemon.port}' on {step.host} shows it), or set another port in "
                f"tailrack:{daemon.key}; then run up again",
            )


def _last_words(daemon: Daemon) -> str:
    """Return a daemon's last error, or its last line, without systemd's lines; and whether its disk is full."""
    # The state folder of a dynamic account; otherwise that of a normal account.
    folder = f"/var/lib/private/{daemon.name}"
    if not files.is_folder(folder):
        folder = f"/var/lib/{daemon.name}"
    full = f"{folder} is on a full disk; " if free_bytes(folder) < _LEAST_ROOM else ""
    query = (f"_SYSTEMD_UNIT={daemon.unit}", "-n", "300", "-o", "cat", "--no-pager")
    lines = attempt("journalctl", *query, quiet=True).output.splitlines()
    errors = [line for line in lines if _ERROR.search(line)]
    return full + printable((errors or lines or [""])[-1], 400)


def free_bytes(folder: str) -> int:
    """Return the room on a folder's disk; very much if there is no folder."""
    try:
        state = os.statvfs(files.on_disk(folder))
    except OSError:
        return 2**63
    return state.f_bavail * state.f_frsize


def silence_daemon(package: str, unit: str) -> None:
    """Stop and disable the unit of a package that tailrack installed.

    Only before tailrack's own unit exists, so that a person can enable the package's unit later.
    """
    if not files.exists(f"{systemd.UNITS}/{unit}") and package in files.lines(f"{STATE_DIR}/packages"):
        run("systemctl", "disable", "-q", "--now", f"{package}.service")
