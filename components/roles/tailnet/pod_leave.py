"""Log a pod out of the tailnet, and end its services, after this program has ended: both cut the connection."""

from __future__ import annotations

import os

from components.node import files, run
from components.node.failure import Failure
from components.node.locks import PRIVATE, Lock
from components.node.services import FOLDER as SERVICES
from components.node.services import SUPERVISOR_PID
from components.node.step.step import LOG_DIR, Step
from components.roles.pod.paths import STATE
from components.roles.tailnet.join import KEYRING, SOURCE_LIST, remove_keys

_LEAVING = "leaving"
_LOGOUT_SECONDS = 90
# The one second lets the SSH session send its last output.
_LOG_OUT = f"""
timeout 20 tail --pid="$1" -s 0.1 -f /dev/null
sleep 1
timeout 60 tailscale logout
kill -TERM "$(cat {SUPERVISOR_PID})"
sv -w 10 force-shutdown {SERVICES}/*
rm -rf {STATE} /usr/local/lib/tailrack /usr/local/sbin/tailrack-leave /var/lib/tailrack/tailnet*
rmdir /var/lib/tailrack
"""


def pod_leave(step: Step) -> None:
    """Give up the membership, and remove the cluster's files when it has ended."""
    remove_keys()
    files.remove(SOURCE_LIST)
    files.remove(KEYRING)
    files.make_folder(PRIVATE, 0o700)
    # The SSH session would wait for a process that has its output.
    log = files.open_to_write(f"{LOG_DIR}/leaving.log", 0o644)
    words = ("flock", "-o", f"{PRIVATE}/{_LEAVING}.lock", "sh", "-c", _LOG_OUT, "log-out", str(os.getpid()))
    run.begin(*words, output=log)
    os.close(log)


def let_leaving_end(host: str) -> None:
    """Wait for a logout that is still running."""
    try:
        Lock(_LEAVING, seconds=_LOGOUT_SECONDS).release()
    except Failure:
        raise Failure(
            f"{host} has been leaving a tailnet for {_LOGOUT_SECONDS}s", f"see 'tailscale status' on {host}"
        ) from None
