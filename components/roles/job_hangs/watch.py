"""Watch a job's GPUs on a node, and the command `job-hangs-here`: answer the head node.

Role usage calls `watch` once a minute.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from components.node import files
from components.node.accounts import as_user
from components.node.passwd import user_with
from components.roles.job_hangs.paths import ASK_RAS, MINUTES, OWNERS, STALLS
from components.roles.job_hangs.stall import RasFinding, Stall, after_sample, as_json, read_finding, read_stall
from components.roles.usage.paths import JOBS
from components.roles.usage.samples import Reading

# ask-ras ends by itself before.
LIMIT_SECONDS = 30
# For all jobs of a node, of the time limit of the sampler's unit.
ASKING_SECONDS = 20
_FIRST_USER = 1000


def main(_: Sequence[str]) -> int:
    """Print {"jobs": {"12": stall}} of jobs with GPUs here."""
    stalls = {job: read_stall(files.read(f"{STALLS}/{job}") or "") for job in files.names_in(STALLS)}
    rows = {job: asdict(stall) for job, stall in stalls.items() if stall and files.exists(f"{JOBS}/{job}")}
    sys.stdout.write(json.dumps({"jobs": rows}))
    return 0


def minutes() -> int:
    """Return the config's minutes; 0 if jobs that hang are not searched."""
    text = (files.read(MINUTES) or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else 0


def forget() -> None:
    """Forget jobs that have ended."""
    for job in files.names_in(STALLS):
        if not files.exists(f"{JOBS}/{job}"):
            files.remove(f"{STALLS}/{job}")


def watch(job: str, readings: Sequence[Reading | None], limit: int, end: float) -> None:
    """Add a sample of the job's GPUs.

    limit   the config's minutes
    end     the monotonic time after which RAS is not asked, so that all jobs get their samples
    """
    before = read_stall(files.read(f"{STALLS}/{job}") or "") or Stall()
    question = partial(ask, job) if time.monotonic() < end else None
    stall = after_sample(before, readings, int(time.time()), limit, question)
    files.make_folder(STALLS, 0o700)
    files.write(f"{STALLS}/{job}", as_json(stall), 0o600)


def ask(job: str) -> RasFinding | None:
    """Ask the job's RAS as its user; None without an answer."""
    owner = (files.read(f"{OWNERS}/{job}") or "").strip()
    user = user_with(int(owner)) if owner.isascii() and owner.isdecimal() else None
    if user is None or user.pw_uid < _FIRST_USER:
        return None
    # With the user's group: without it, another process cannot read the descriptors of the job's.
    ended = as_user((user.pw_uid, user.pw_gid), ASK_RAS, job, limit=LIMIT_SECONDS)
    return read_finding(ended.output) if ended.ok else None
