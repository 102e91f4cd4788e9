"""Connect to the Docker engine; install and start it if it is missing."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, NotFound

from lab.commands import apt_install, run
from lab.errors import LabError
from lab.identity import CHECKOUT
from lab.progress import say

START_LIMIT_S = 60.0
"""How long a Docker engine that was just started may take to answer."""

PID_FILE = CHECKOUT / ".tailrack" / "dockerd.pid"
LOG_FILE = CHECKOUT / ".tailrack" / "dockerd.log"

WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
"""How many inotify instances root may have. Each machine's systemd takes about seven, and beyond them it does not boot:
Debian's 128 are 16 machines."""
ENOUGH_WATCHES = 1024


def connect() -> docker.DockerClient:
    """Return a client of the engine the environment names.

    Raises LabError when it does not answer.
    """
    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except DockerException as error:
        raise LabError(f"the Docker engine does not answer ({error}); run `python -m lab image`") from error
    return client


def find(collection: Any, name: str) -> Any:
    """Return the container, network or image called `name` among a client's `collection` of them, or None."""
    try:
        return collection.get(name)
    except NotFound:
        return None


def _answers() -> bool:
    try:
        connect().close()
    except LabError:
        return False
    return True


def ensure_daemon() -> None:
    """Have a Docker engine; install and start one if none answers.

    Raises LabError with the end of its log when it does not answer within START_LIMIT_S.
    """
    if not _answers():
        if shutil.which("dockerd") is None:
            say("docker: no engine here; installing Debian's docker.io")
            apt_install(["docker.io"])
        _start()
    _raise_watches()


def _raise_watches() -> None:
    """Let more machines boot than a machine of few services needs; until its next start, and never to less."""
    try:
        if int(WATCHES.read_text()) < ENOUGH_WATCHES:
            run(["sh", "-c", f"echo {ENOUGH_WATCHES} >{WATCHES}"], root=True)
            say(f"lab: {WATCHES.name} of fs.inotify is {ENOUGH_WATCHES} now, so that many machines can boot")
    except (LabError, OSError, ValueError) as error:
        say(f"lab: {WATCHES} cannot be raised, and with many machines some may not boot ({error})")


def _start() -> None:
    """Start dockerd, by systemd where it runs, and wait until it answers."""
    if Path("/run/systemd/system").is_dir():
        run(["systemctl", "start", "docker"], root=True, hint="see `journalctl -u docker`")
        process = None
    else:
        say(f"docker: starting dockerd; its log is {LOG_FILE}")
        PID_FILE.parent.mkdir(parents=True, exist_ok=True)
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        with LOG_FILE.open("ab") as log:
            process = subprocess.Popen(
                [*sudo, "dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        PID_FILE.write_text(f"{process.pid}\n")
    deadline = time.monotonic() + START_LIMIT_S
    while not _answers():
        if (process and process.poll() is not None) or time.monotonic() > deadline:
            log_end = LOG_FILE.read_text(errors="replace").splitlines()[-3:] if process else []
            PID_FILE.unlink(missing_ok=True)
            raise LabError(f"dockerd does not answer: {' | '.join(log_end)}; see {LOG_FILE} or `docker info`")
        time.sleep(0.2)


def _is_dockerd(pid: int) -> bool:
    """Whether process `pid` is a dockerd that has not ended (one that has, but is not yet reaped, has no words)."""
    try:
        return b"dockerd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def stop_daemon() -> bool:
    """Stop the dockerd that `ensure_daemon` started by hand, if it still runs; True when one was stopped."""
    if not PID_FILE.exists():
        return False
    pid = int(PID_FILE.read_text())
    running = _is_dockerd(pid)
    if running:
        run(["kill", "-TERM", str(pid)], root=True)
        deadline = time.monotonic() + START_LIMIT_S
        while _is_dockerd(pid):
            if time.monotonic() > deadline:
                raise LabError(f"dockerd (process {pid}) does not stop; see {LOG_FILE}, then `kill -9 {pid}`")
            time.sleep(0.2)
    PID_FILE.unlink()
    return running
