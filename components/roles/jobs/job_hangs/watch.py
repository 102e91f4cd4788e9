"""Watch a job's GPUs on a node, and the command `job-hangs-here`: answer the head node.

Role usage calls `watch` once a minute. A stall is how long a job's GPUs on one node have waited, and what RAS answered
meanwhile.

A rank that waits in a collective operation runs a kernel that only looks at memory: an H200 shows 100 % utilization
and 18 % of its power limit, against 99 % at work and 36 % with less utilization in all_reduce without an end.
The rank that it waits for may leave its GPU idle. A GPU that works ends the stall.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from components.node import files
from components.node.accounts import as_user
from components.node.locks import PRIVATE
from components.node.passwd import user_with
from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.jobs.job_hangs.communicators import EQUAL, NONE, Count, Finding
from components.roles.monitoring.usage.samples import JOBS, Reading
from components.validation.untrusted import read

# The minutes of the config. Slurm's TaskProlog gives jobs a RAS port of their own where it exists.
MINUTES = "/etc/tailrack/job-hangs"
# One file per job: its name is the job's id, its content the user's uid (the prolog, role health).
OWNERS = f"{PRIVATE}/jobs"
# One file per job: how long its GPUs have waited, and what RAS answered, in JSON.
STALLS = f"{PRIVATE}/job-hangs"
ASK_RAS = "/usr/local/lib/tailrack/ask-ras"
ANSWER = f"{ANSWERS}/job-hangs"
# The RAS port of job N is FIRST_PORT + N % PORTS: below the ports that Linux and srun give out. The TaskProlog has the
# same numbers.
FIRST_PORT, PORTS = 21000, 10000
# ask-ras ends by itself before.
LIMIT_SECONDS = 30
# For all jobs of a node, of the time limit of the sampler's unit.
ASKING_SECONDS = 20
_FIRST_USER = 1000
# RAS is asked first after so many samples, and again at the sample of the config's minutes; then in every fifth minute.
FIRST_SAMPLE = 2
AGAIN_SAMPLES = 5


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


def ask(job: str) -> Finding | None:
    """Ask the job's RAS as its user; None without an answer."""
    owner = (files.read(f"{OWNERS}/{job}") or "").strip()
    user = user_with(int(owner)) if owner.isascii() and owner.isdecimal() else None
    if user is None or user.pw_uid < _FIRST_USER:
        return None
    # With the user's group: without it, another process cannot read the descriptors of the job's.
    ended = as_user((user.pw_uid, user.pw_gid), ASK_RAS, job, limit=LIMIT_SECONDS)
    return read_finding(ended.output) if ended.ok else None


@dataclass(frozen=True)
class Stall:
    """The samples in a row in which none of a job's GPUs on a node worked. One sample a minute.

    since      Unix seconds of the first of them
    waiting    number of GPUs that ran a kernel without work in the last one
    idle       number of the others
    asked      the sample at which RAS was asked last; 0: not yet
    first      the sample at which it gave this finding first
    unchanged  samples between the first and the last time that it gave it
    """

    since: Count = 0
    samples: Count = 0
    waiting: Count = 0
    idle: Count = 0
    asked: Count = 0
    first: Count = 0
    unchanged: Count = 0
    finding: Finding | None = None


def signs(readings: Iterable[Reading | None]) -> tuple[int, int] | None:
    """Return how many GPUs wait and how many are idle; None if one may work."""
    waiting = idle = 0
    for reading in readings:
        if reading is None or not (reading.idle or reading.waits):
            return None
        idle += reading.idle
        waiting += reading.waits
    return (waiting, idle) if waiting or idle else None


def after_sample(
    stall: Stall,
    readings: Sequence[Reading | None],
    now: int,
    minutes: int,
    ask: Callable[[], Finding | None] | None,
) -> Stall:
    """Return the stall after one more sample. `ask` asks RAS; None if there is no time for it now."""
    counts = signs(readings)
    if counts is None:
        return Stall()
    samples = stall.samples + 1
    stall = replace(stall, since=stall.since or now, samples=samples, waiting=counts[0], idle=counts[1])
    # Two answers that are far enough apart are enough.
    wait = apart(minutes) if stall.finding and not stall.unchanged else AGAIN_SAMPLES
    if ask is None or samples < FIRST_SAMPLE or (stall.asked and samples - stall.asked < wait):
        return stall
    answer = _with_idle_ranks(ask(), readings)
    if answer and stall.finding and answer.digest == stall.finding.digest:
        return replace(stall, asked=samples, unchanged=samples - stall.first, finding=answer)
    return replace(stall, asked=samples, first=samples, unchanged=0, finding=answer)


def apart(minutes: int) -> int:
    """Return the minutes between two answers of RAS, so that both fit into the config's minutes."""
    return minutes - FIRST_SAMPLE


def _with_idle_ranks(answer: Finding | None, readings: Sequence[Reading | None]) -> Finding | None:
    """Keep only ranks with an idle GPU where RAS shows no late rank."""
    if answer is None or answer.kind not in (EQUAL, NONE):
        return answer
    # A confined job counts its own GPUs, another one all of the machine.
    places = [reading.index if reading else -1 for reading in readings]
    if all(rank.gpu < len(places) for rank in answer.ranks):
        places = list(range(len(places)))
    idle = {place for place, reading in zip(places, readings, strict=True) if reading and reading.idle}
    return replace(answer, ranks=tuple(rank for rank in answer.ranks if rank.gpu in idle))


def as_json(stall: Stall) -> str:
    """Return the stall as JSON."""
    return json.dumps(asdict(stall))


def read_stall(text: str) -> Stall | None:
    """Read it again; None if it is malformed."""
    try:
        return read(Stall, json.loads(text))
    except (ValueError, RecursionError):
        return None


def read_finding(text: str) -> Finding | None:
    """Read the output of `ask-ras`, which a process of the job's user prints; None if it is malformed or empty."""
    try:
        return read(Finding, json.loads(text))
    except (ValueError, RecursionError):
        return None
