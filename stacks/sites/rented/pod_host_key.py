"""Create a host key that only this pod knows, and keep it on the volume, from which the start command installs it.

The first key came in the pod's environment, where the start command finds it at every start. So it stays, and this step
can run again if its answer was lost. Later connections accept only the new key. The module runs on the pod.
"""

import os
import signal
from contextlib import suppress

from components.node import files
from components.node.run import run
from components.node.step.step import Step

_OWN = "/etc/ssh/ssh_host_ed25519_key"
_VOLUME = "/workspace/.tailrack"
_SERVER_PID = "/run/sshd.pid"


def up(step: Step) -> None:
    """Create the key and report it."""
    files.make_folder(_VOLUME, 0o700)
    kept = f"{_VOLUME}/{_OWN.rpartition('/')[2]}"
    # The key on the volume counts: the image's start program creates others on the container's disk.
    if not files.read(kept) or not files.read(f"{kept}.pub"):
        for path in (kept, f"{kept}.pub"):
            files.remove(path)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", files.on_disk(kept))
    changed = files.write(_OWN, files.read(kept) or "", 0o600)
    files.write(f"{_OWN}.pub", files.read(f"{kept}.pub") or "")
    if changed:
        _reload_server()
    step.result("host_key", " ".join((files.read(f"{_OWN}.pub") or "").split()[:2]) or None)


def _reload_server() -> None:
    """Make sshd read its keys again. Connections stay."""
    pid = (files.read(_SERVER_PID) or "").strip()
    with suppress(ProcessLookupError):
        if pid.isdigit():
            os.kill(int(pid), signal.SIGHUP)
