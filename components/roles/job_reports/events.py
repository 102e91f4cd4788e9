"""Read the events that slurmctld's MailProg has left, and find who gets a report. The files are untrusted."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ENDING = ".event"
_MOST_BYTES = 16384
_NUMBER = re.compile(r"[0-9]{1,10}")
_SUBJECT = re.compile(
    r"Slurm (Array Summary )?(?:Array Task )?Job_id=([0-9]{1,10})(?:_[0-9*]{1,10} \(([0-9]{1,10})\))?"
)
_USER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# The form that job_submit.lua allows. It contains nothing that SMTP or a mail header gives a meaning.
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
# A job can name many addresses.
MOST_RECEIVERS = 5


@dataclass(frozen=True)
class Event:
    """One message that slurmctld wants to send.

    job       the job's number, or the array's for the summary of an array
    user      the job's user as slurmctld names it; empty before Slurm 23.11
    to        the text of --mail-user
    subject   slurmctld's sentence. It contains the job's name, which a user chose
    summary   whether it is about a whole array
    """

    job: str
    user: str
    to: str
    subject: str
    summary: bool = False


def waiting(spool: Path) -> list[Path]:
    """Return the files of events, oldest first."""
    with os.scandir(spool) as entries:
        names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return [spool / name for name in sorted(names) if name.endswith(_ENDING)]


def read_event(path: Path) -> Event | None:
    """Return an event; None if the file has another form."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            fields = stream.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    if len(fields) != 5:
        return None
    job, user, to, subject, _ = fields
    match = _SUBJECT.match(subject)
    if match and match[1]:
        job = match[2]
    elif not _NUMBER.fullmatch(job):
        # A task of an array has two numbers: `Job_id=12_3 (15)`.
        job = match[3] or match[2] if match else ""
    if not job:
        return None
    return Event(job, user if _USER.fullmatch(user) else "", to, subject, bool(match and match[1]))


def remove(path: Path) -> None:
    """Remove the file of an event."""
    with suppress(FileNotFoundError):
        path.unlink()


def receivers(to: str, user: str, notify: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield mail addresses and names of channels, each once.

    The name of the job's user stands for the receivers in the config. Other accounts' names do not, so that no one can
    write to another user's channel.
    """
    found: dict[str, None] = {}
    for word in to.split(","):
        if word == user:
            found |= dict.fromkeys(notify.get(user, ()))
        elif _ADDRESS.fullmatch(word):
            found[word] = None
    yield from list(found)[:MOST_RECEIVERS]
