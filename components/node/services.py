"""Keep programs running: by systemd, or on a pod, which has none, by runit.

A pod's service is a folder of runit with its program `run`. tini collects the processes that jobs leave behind, because
the pod's first process may not do so.
"""

import os

from components.node import files, run, systemd
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import LOG_DIR
from components.node.run import attempt
from components.node.waiting import wait_until

# The folder of the services, and the program that starts them all.
FOLDER = "/usr/local/lib/tailrack/services"
SUPERVISOR = "/usr/local/lib/tailrack/supervise"
# The process of the supervisor. TERM ends it and all services.
SUPERVISOR_PID = f"{PRIVATE}/supervisor.pid"
PACKAGES = ("runit", "tini")
_LOCK = f"{PRIVATE}/supervisor.lock"
# Seconds for runsvdir to find a new service, which it looks for every five seconds.
_FOUND_SECONDS = 30
# Seconds for a service to end.
_END_SECONDS = 20
_SUPERVISOR_TEXT = f"""#!/bin/sh
# Written by tailrack: keep the services of this pod running.
echo $$ >{SUPERVISOR_PID}
trap 'kill -HUP "$child"; exit 0' TERM
while :; do
    # Services go on without tini, which no longer collects what jobs leave behind: start them again under a new one.
    pkill -f "^runsvdir -P {FOLDER}"
    sv -w 5 force-shutdown {FOLDER}/* >/dev/null 2>&1
    tini -s -- runsvdir -P {FOLDER} >/dev/null 2>&1 &
    child=$!
    wait "$child"
    sleep 0.5
done"""
_LOG_TEXT = """#!/bin/sh
# Written by tailrack. A new container has no folder, and without a reader the service would wait when its pipe is full.
mkdir -p {folder}
exec svlogd -tt {folder}"""


def on_runit() -> bool:
    """Return whether runit keeps the cluster's programs running here."""
    return files.exists(SUPERVISOR)


def keep(name: str, program: str, host: str, *, restart_it: bool = False) -> None:
    """Keep a program running on a pod. A changed one starts again. Raises Failure if it does not start.

    restart_it   whether it starts again in any case
    """
    ran = is_active(name)
    changed = write(name, program)
    if ran and (changed or restart_it):
        restart(name)
    else:
        start(name, host)


def write(name: str, program: str) -> bool:
    """Write the program of a service, and return whether it changed. `start` or `restart` puts it into effect."""
    files.make_folder(f"{LOG_DIR}/{name}")
    # The service comes last, when its log is there.
    files.write(f"{_folder(name)}/log/run", _LOG_TEXT.format(folder=f"{LOG_DIR}/{name}"), 0o755)
    # The address of a proxy may have a password (tailnet/pod.py).
    return files.write(f"{_folder(name)}/run", program, 0o700)


def start_all() -> None:
    """Start the supervisor, which starts all services. A second one ends at once."""
    files.make_folder(PRIVATE, 0o700)
    files.write(SUPERVISOR, _SUPERVISOR_TEXT, 0o755)
    # -o: jobs must not inherit the lock.
    run.begin("flock", "-n", "-o", _LOCK, SUPERVISOR)


def start(name: str, host: str) -> None:
    """Wait until a service runs. Raises Failure."""
    if not wait_until(lambda: is_active(name) or attempt("sv", "start", _folder(name)).ok, _FOUND_SECONDS):
        raise Failure(f"{name} does not start", f"see {log_of(name, host)}")


def log_of(name: str, host: str) -> str:
    """Return the command that shows the log of a service or a unit, for a message."""
    return f"'tail {LOG_DIR}/{name}/current' on {host}" if on_runit() else f"'journalctl -u {name}' on {host}"


def is_active(name: str) -> bool:
    """Return whether a service or a unit runs."""
    if not on_runit():
        return systemd.is_active(name)
    return attempt("sv", "status", _folder(name), quiet=True).output.startswith("run:")


def restart(name: str) -> None:
    """Restart a service or a unit, and wait until it has started. Raises Failure."""
    if on_runit():
        run.run("sv", "-w", str(_END_SECONDS), "force-restart", _folder(name))
    else:
        run.run("systemctl", "restart", name)


def restart_later(name: str) -> None:
    """Restart a service or a unit without waiting until it is ready."""
    if on_runit():
        restart(name)
    else:
        systemd.restart_later(name)


def begin_later(seconds: int, *command: str) -> None:
    """Run a command after a number of seconds, even if this program is killed."""
    if not on_runit():
        timer = ("--timer-property=AccuracySec=1s", f"--on-active={seconds}") if seconds else ()
        run.run("systemd-run", "-q", "--collect", *timer, *command)
        return
    # An SSH session would wait for a process that has its output.
    log = files.open_to_write(f"{LOG_DIR}/later.log", 0o644)
    run.begin("sh", "-c", 'sleep "$0"; exec "$@"', str(seconds), *command, output=log)
    os.close(log)


def stop(name: str) -> None:
    """Stop a service or a unit. Raises Failure."""
    if on_runit():
        run.run("sv", "-w", str(_END_SECONDS), "force-stop", _folder(name))
    # systemd's own restart of a daemon that ends again and again cancels a stop at the same moment.
    elif not attempt("systemctl", "stop", name).ok:
        run.run("systemctl", "stop", name)


def _folder(name: str) -> str:
    return f"{FOLDER}/{name}"
