"""Make the copies of an ended job, then empty its folder. Runs as the job's user, in a unit with limits (sweep.py).

Other jobs do not wait for it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from components.node.waiting import sleep
from components.roles.scratch import copies
from components.roles.scratch.copies import Copy
from components.roles.scratch.paths import LIMITS
from components.roles.scratch.sync_report import DONE, FAILED, RETRIES, RUNS, WAITS, report
from components.roles.scratch.transfer import is_there, transfer

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_EMPTY = 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete'


def main(arguments: Sequence[str]) -> int:
    """Copy until all copies are made or the time is over: the folder `sync.JOB.BEGAN.NUMBER`."""
    folder = Path(arguments[0])
    began = folder.name.split(".")[2]
    until = int(began) + _hours() * 3600
    pause = _FIRST_PAUSE
    for copy in copies.listed(folder):
        report(copy, WAITS, until=until)
    while waiting := [copy for copy in copies.listed(folder) if not _finish(folder, copy, until)]:
        left = until - time.time()
        if left <= 0:
            for copy in waiting:
                copies.remove(folder, copy)
            break
        sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)
    return subprocess.run(["/bin/sh", "-c", _EMPTY, "-", str(folder)], check=False).returncode


def _finish(folder: Path, copy: Copy, until: float) -> bool:
    """Try a copy; return whether there is nothing more to do."""
    report(copy, RUNS, until=until)
    reason = transfer(folder, copy, max(until - time.time(), 1))
    if reason:
        final = time.time() >= until or not is_there(folder, copy)
        sys.stderr.write(f"{copy.source} to {copy.target}: {reason}\n")
        report(copy, FAILED if final else RETRIES, reason, until)
        if not final:
            return False
    else:
        report(copy, DONE)
    copies.remove(folder, copy)
    return True


def _hours() -> int:
    try:
        return int(Path(LIMITS).read_text(encoding="utf-8").split()[2])
    except (OSError, ValueError, IndexError):
        return 1
