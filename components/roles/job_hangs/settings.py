"""The section `job_hangs`: jobs whose ranks wait for each other without end."""

from components.settings.problems import Report, Stack
from components.settings.rules import check_on
from components.settings.section import Section, key
from components.settings.types import Whole


class JobHangs(Section):
    """A search for jobs that hang."""

    minutes: Whole = key(ge=5, le=1440, default=5)
    """Report a job without progress of NCCL for so many minutes; longer than a checkpoint by one rank takes."""

    def check(self, stack: Stack, report: Report) -> None:
        check_on((self,), "health", stack.config.health.enabled, "no job's GPUs would be sampled", report)
