"""The section `job_hangs`: jobs whose ranks wait for each other without end."""

from components.settings.problems import Report
from components.settings.section import Section, key
from components.settings.types import Whole


class JobHangs(Section):
    """A search for jobs that hang."""

    minutes: Whole = key(ge=5, le=1440, default=5)
    """Report a job whose GPUs wait and whose NCCL makes no progress for so many minutes; longer than a checkpoint or
    an evaluation by one rank takes."""


def check_job_hangs(hangs: JobHangs, health: bool, report: Report) -> None:
    """Report the section without the scripts that note which GPUs a job has."""
    if not health:
        fix = "remove it, or set tailrack:health.enabled to true"
        report.add(report.at(hangs), "is set while health is off", "no job's GPUs would be sampled", fix)
