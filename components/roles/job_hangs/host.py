"""Install or remove the search for jobs that hang: the watch of a node, and the finder of the head node."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.locks import PRIVATE
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.ssh_trust.ask import ANSWERS

# On a node: the minutes of the config. Slurm's TaskProlog gives jobs a RAS port of their own where it exists.
MINUTES = "/etc/tailrack/job-hangs"
# One file per job: its name is the job's id, its content the user's uid (the prolog, role health).
OWNERS = f"{PRIVATE}/jobs"
# One file per job: how long its GPUs have waited, and what RAS answered, in JSON.
STALLS = f"{PRIVATE}/job-hangs"
ASK_RAS = "/usr/local/lib/tailrack/ask-ras"
ANSWER = f"{ANSWERS}/job-hangs"
# On the head node: the minutes, and a line `number start` for each job whose user got the message.
LIMITS = "/etc/tailrack/job-hangs-limits"
REPORTED = f"{PRIVATE}/job-hangs-reported"
FINDER = "/usr/local/lib/tailrack/job-hangs"
# The RAS port of job N is FIRST_PORT + N % PORTS: below the ports that Linux and srun give out. The TaskProlog has the
# same numbers.
FIRST_PORT, PORTS = 21000, 10000


@dataclass(frozen=True)
class WatchValues:
    """The programs, and the minutes; 0 without job_hangs in the config.

    node_gpu_count   0 without GPUs
    """

    node_gpu_count: int
    job_hangs_minutes: int
    job_hangs_ask_ras: str
    job_hangs_answer: str


def compute(step: Step, values: WatchValues) -> None:
    """Install it, or remove it."""
    if not (values.job_hangs_minutes and values.node_gpu_count):
        remove_watch()
        return
    files.write_all(
        [
            File(ASK_RAS, values.job_hangs_ask_ras, 0o755),
            File(ANSWER, values.job_hangs_answer, 0o755),
            File(MINUTES, str(values.job_hangs_minutes)),
        ]
    )


@dataclass(frozen=True)
class FinderValues:
    """The program; 0 minutes without job_hangs in the config."""

    job_hangs_minutes: int
    job_hangs_finder: str


def services(step: Step, values: FinderValues) -> None:
    """Install it, or remove it."""
    if not values.job_hangs_minutes:
        remove_finder()
        return
    files.write_all([File(LIMITS, str(values.job_hangs_minutes)), File(FINDER, values.job_hangs_finder, 0o755)])


def leave(step: Step) -> None:
    """Remove both."""
    do_each(remove_watch, remove_finder)


def remove_watch() -> None:
    """Remove the watch of a node."""
    for path in (MINUTES, ANSWER, ASK_RAS):
        files.remove(path)
    files.remove_folder(STALLS)


def remove_finder() -> None:
    """Remove the finder of the head node. Notes in Slurm stay until their jobs end."""
    for path in (FINDER, LIMITS, REPORTED):
        files.remove(path)
