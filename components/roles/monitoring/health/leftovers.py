"""Kill the processes that a user's jobs left running here. The epilog starts it after the user's last job on the node.

They would keep memory or GPUs that Slurm gives to the next job.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from components.node.services import SUPERVISOR
from components.validation.preflight.findings import plain
from components.validation.preflight.holders import in_a_job
from components.validation.this_node import text_of

# Users who can log in here only while they have a job, one a line (role pam_slurm_adopt).
_JOB_USERS = "etc/tailrack/job-users"
# Seconds to wait after each kill.
_WAITS = (0.2, *[1] * 8)


def main(_arguments: Sequence[str], root: Path = Path("/")) -> int:
    """Kill them. Return 1 if some do not end."""
    uid = int(os.environ["SLURM_JOB_UID"])
    pids: list[str] = []
    for seconds in _WAITS:
        if not (pids := leftover_processes(uid, root)):
            return 0
        for pid in pids:
            sys.stdout.write(f"killing process {pid} of uid {uid}: {plain(text_of(root / 'proc' / pid / 'comm'))}\n")
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(seconds)
    look = f"see what they wait for ('ps -o pid,stat,wchan:30,cmd -u {uid}'); restart the node if they do not end"
    problem = f"processes of uid {uid}, who has no job left on this node, do not end: {' '.join(pids)}"
    sys.stdout.write(f"next: {look}\n{problem}\n")
    return 1


def leftover_processes(uid: int, root: Path) -> list[str]:
    """Return a user's processes that slurmd started and that are in no job. Zombies hold no resources; skip them."""
    is_theirs = re.compile(rf"^State:\s+[^Z](?s:.*)^Uid:\s+{uid}\b", re.MULTILINE)
    pids = [folder.name for folder in (root / "proc").glob("[0-9]*") if is_theirs.search(text_of(folder / "status"))]
    return [pid for pid in pids if not in_a_job(pid, root) and started_by_slurm(pid, uid, root)]


def started_by_slurm(pid: str, uid: int, root: Path) -> bool:
    """Return whether slurmd started a process, or a login that needs a job.

    A user's other processes (a login on a head node, a service, cron) belong to no job.
    """
    # On a pod (role pod), users have no other way in, and no cgroup tells.
    if (root / SUPERVISOR[1:]).exists():
        return True
    # With several hierarchies, systemd's is the last line.
    group = re.search(r"^0::(.*)$", text_of(root / "proc" / pid / "cgroup"), re.MULTILINE)
    path = group[1] if group else ""
    if "/slurmd.service" in path or "slurmstepd.scope" in path:
        return True
    with suppress(KeyError):
        return "/user.slice/" in path and pwd.getpwuid(uid).pw_name in text_of(root / _JOB_USERS).splitlines()
    return False
