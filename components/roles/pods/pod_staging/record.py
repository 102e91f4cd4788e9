"""Records of jobs whose folder is on a pod: JSON files on the head node. `tailrack why` of users reads them."""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from components.node import files
from components.node.log import STATE_DIR
from components.roles.slurm.slurm.folders import STAGE_IN, STAGE_OUT

# States: the job has its files; its folder did not come to the pod; its results are still on the pod.
STAGED, NOT_IN, KEPT = "staged", "not-in", "kept"
_STATES = (STAGED, NOT_IN, KEPT)
# Seconds for which a record of a failure is kept.
KEEP_SECONDS = 30 * 86400
# On the head node: a file for each node that is a pod, and one for each job whose folder is on a pod.
PODS = f"{STATE_DIR}/pods"
RECORDS = f"{STATE_DIR}/pod-staging"
# Root's service, which slurmctld's programs ask.
SOCKET = "/run/tailrack-pod-staging.sock"
PROGRAM = "/usr/local/lib/tailrack/pod-staging"
UNITS = ("tailrack-pod-staging.socket", "tailrack-pod-staging@.service")
# The program that rsync runs in place of ssh.
LINK = "/usr/local/lib/tailrack/pod-link"
ON_HEAD = (STAGE_IN, STAGE_OUT, PROGRAM, LINK)
# The request that a pod answers.
REQUEST = "pod-files"
# On a pod: the program that ends steps which a restart of tailscaled has cut off.
CUT_OFF = "/usr/local/lib/tailrack/pod-cut-off"


@dataclass(frozen=True)
class Record:
    """A job's folder on a pod.

    node     the names of its pods, joined by commas
    reason   why it did not come to the pod, or why results did not come back
    """

    job: int
    node: str
    user: str
    folder: str
    partition: str = ""
    state: str = STAGED
    reason: str = ""

    @property
    def nodes(self) -> list[str]:
        """Return the names of its pods."""
        return self.node.split(",")

    @property
    def next(self) -> str:
        """Return the next command."""
        if self.state == KEPT:
            return f"srun -p {self.partition} -w {self.node} -D {shlex.quote(self.folder)} --comment=stage true"
        return "submit it again from a folder that has only the files of this job (docs/using.md, pods)"


def read_record(job: int, folder: str = RECORDS) -> Record | None:
    """Return a job's record; None without one. Users may call this too."""
    try:
        record = Record(**json.loads(Path(files.on_disk(f"{folder}/{job}")).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return record if record.state in _STATES else None


def records() -> list[Record]:
    """Return all records, and remove those of failures long ago."""
    found = []
    for name in files.names_in(RECORDS):
        record = read_record(int(name)) if name.isdecimal() else None
        if record is None or (record.state != STAGED and (files.age_of(f"{RECORDS}/{name}") or 0) > KEEP_SECONDS):
            files.remove(f"{RECORDS}/{name}")
        else:
            found.append(record)
    return found


def write_record(record: Record) -> None:
    """Write a job's record."""
    files.write(f"{RECORDS}/{record.job}", json.dumps(asdict(record)))


def remove_record(job: int) -> None:
    """Remove a job's record."""
    files.remove(f"{RECORDS}/{job}")
