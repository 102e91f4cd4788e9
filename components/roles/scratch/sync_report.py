"""Where a user sees how copies went: a file in the user's home, which `tailrack why` reads, and one beside the target.

Runs as the user.
"""

from __future__ import annotations

import json
import os
import pwd
import time
from contextlib import suppress
from pathlib import Path

from components.node.text import printable
from components.roles.scratch.copies import Copy

# States of a copy: asked for, being made, made, failed and tried again, failed for good.
WAITS, RUNS, DONE, RETRIES, FAILED = "waits", "runs", "done", "retries", "failed"
_FOLDER = ".local/state/tailrack/sync"
_BESIDE = ".sync-failed.txt"
_KEPT_SECONDS = 90 * 86400
_MOST_COPIES, _MOST_BYTES = 64, 65536


def report(copy: Copy, state: str, reason: str = "", until: float = 0) -> None:
    """Write how a copy is doing. A home that cannot be written stops no copy.

    until   when the node stops trying
    """
    row = {
        "node": copy.node,
        "source": copy.source,
        "target": copy.target,
        "state": state,
        "reason": reason,
        "time": int(time.time()),
        "until": int(until),
    }
    with suppress(OSError):
        place = _home() / _FOLDER / copy.job
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = place / f".{copy.node}-{copy.id}.{os.getpid()}"
        new.write_text(json.dumps(row), encoding="utf-8")
        new.rename(place / f"{copy.node}-{copy.id}.json")
    if not copy.is_remote:
        with suppress(OSError):
            _write_beside(Path(f"{copy.target}{_BESIDE}"), copy, state, reason, until)


def _write_beside(path: Path, copy: Copy, state: str, reason: str, until: float) -> None:
    if state == DONE:
        path.unlink(missing_ok=True)
    elif state in (RETRIES, FAILED):
        path.write_text(f"job {copy.job} on {copy.node}: {sentence(copy.source, copy.target, state, reason, until)}\n")


def sentence(source: str, target: str, state: str, reason: str, until: float) -> str:
    """Return one sentence about a copy."""
    what = f"copy of {source} to {target}"
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
    if until and until < time.time() and state not in (DONE, FAILED):
        return f"{what}: failed, the node has not finished it by {moment}"
    ends = f"; the node tries again until {moment}" if until else "; the node tries again when the job has ended"
    return {
        WAITS: f"{what}: made when the job has ended",
        RUNS: f"{what}: being made",
        DONE: f"{what}: done",
        RETRIES: f"{what}: failed: {reason}{ends}",
        FAILED: f"{what}: failed: {reason}",
    }.get(state, f"{what}: unknown")


def sentences(job: int) -> list[str]:
    """Return a sentence for each copy of a job of the user who asks."""
    place = _home() / _FOLDER / str(job)
    lines = []
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and not path.is_symlink())
    except OSError:
        return []
    for path in paths[:_MOST_COPIES]:
        try:
            with path.open(encoding="utf-8") as file:
                row = json.loads(file.read(_MOST_BYTES))
            texts = [str(row[key]) for key in ("source", "target", "state", "reason")]
            lines.append(f"{row['node']}: {sentence(texts[0], texts[1], texts[2], texts[3], float(row['until']))}")
        except (OSError, ValueError, LookupError, TypeError, OverflowError):
            continue
    return [printable(line, 1000) for line in lines]


def forget_old() -> None:
    """Remove reports of jobs that ended long ago."""
    with suppress(OSError):
        for place in (_home() / _FOLDER).iterdir():
            if time.time() - place.lstat().st_mtime > _KEPT_SECONDS:
                for path in place.iterdir():
                    path.unlink()
                place.rmdir()


def _home() -> Path:
    return Path(_account().pw_dir)


def _account() -> pwd.struct_passwd:
    return pwd.getpwuid(os.getuid())
