"""Check this node's mounts every minute, and set its features in Slurm (task `mounts`).

A node has the feature of a mount while that works. Mounts that left the config are unmounted as soon as nothing uses
them.
"""

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.node import files, run
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.waiting import within
from components.roles.slurm.slurm.node_state import set_live_features
from components.roles.storage.mounts import units
from components.roles.storage.mounts.probe import NodeList, Problem, check_all, read_list, write_problem
from components.roles.storage.mounts.units import remove_watch
from components.roles.storage.share.mount import start
from components.settings.network_names import NFS
from components.validation.preflight.storage import RESULTS
from components.validation.this_node import load, save

ROLE = "mounts"
# Seconds between two attempts to write, after a success and after a failure.
_WRITE_SECONDS, _WRITE_AGAIN_SECONDS = 3600, 300
_LOCK_SECONDS = 300


def main(_arguments: Sequence[str]) -> int:
    """Run one check."""
    os.umask(0o022)
    os.environ["PATH"] = run.PATH
    try:
        with lock():
            check(socket.gethostname().split(".")[0], read_list())
    except Failure as failure:
        remedy = failure.remedy or "see 'journalctl -u tailrack-mounts'"
        sys.stderr.write(f"tailrack-mounts: {failure.reason}; next: {remedy}\n")
        return 1
    return 0


def lock() -> Lock:
    """Take the lock of everything that changes this node's mounts."""
    return Lock(ROLE, seconds=_LOCK_SECONDS)


def check(host: str, wanted: NodeList) -> Mapping[str, Problem]:
    """Finish changes that waited for jobs, check all mounts, and report. Return the problems by path."""
    ours = units.recorded()
    start(*(mount.path for mount in wanted.mounts if mount.type == NFS and mount.path in ours))
    finish(wanted)
    problems = problems_of(wanted)
    set_live_features(host, ROLE, {mount.feature for mount in wanted.mounts if mount.path not in problems})
    if not wanted.mounts and not units.recorded():
        remove_watch()
    return problems


def finish(wanted: NodeList) -> list[str]:
    """Take away mounts that are not wanted, and renew stale ones. Return the paths that are still in use."""
    paths = {mount.path for mount in wanted.mounts if mount.type == NFS}
    former = [path for path in units.recorded() if path not in paths and not units.take_away(path)]
    return former + [path for path in units.recorded("stale") if path in paths and not units.renew(path)]


def problems_of(wanted: NodeList, *, write: bool = False) -> Mapping[str, Problem]:
    """Check all mounts and save the results for the health check. Return the problems by path.

    write   try to write to each mount, however long ago the last attempt was; to the homes only then: their first user
            could drain every node between two runs of up
    """
    now, problems = time.time(), dict(check_all(wanted.mounts))
    before, rows = {} if write else _last_rows(), []
    for mount in wanted.mounts:
        row: dict[str, Any] = {"path": mount.path, "required": mount.required}
        if (mount.type == NFS or mount.home) and not mount.read_only and mount.path not in problems:
            last = before.get(mount.path, {})
            problem = Problem(last["problem"], last["remedy"]) if last.get("problem") else None
            row["written"] = last.get("written", 0.0)
            seconds = _WRITE_AGAIN_SECONDS if problem else _WRITE_SECONDS
            if write or not (mount.home or within(seconds, row["written"], now)):
                row["written"], problem = now, write_problem(mount, wanted.user)
            if problem:
                problems[mount.path] = problem
        found = problems.get(mount.path, Problem("", ""))
        rows.append({**row, "problem": found.text, "remedy": found.remedy})
    save(Path(files.on_disk(f"/{RESULTS}")), {"time": now, "mounts": rows}, 0o644)
    return problems


def _last_rows() -> dict[str, dict[str, Any]]:
    """Return the last results of mounts that were written to, by path. `written`: the time of that attempt."""
    results = load(Path(files.on_disk(f"/{RESULTS}")))
    rows = results["mounts"] if isinstance(results, dict) else ()
    return {row["path"]: row for row in rows if "written" in row}
