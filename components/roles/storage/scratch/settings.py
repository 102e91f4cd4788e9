"""The section `scratch`: space for jobs on a local disk of their node."""

from components.settings.problems import Report, Stack
from components.settings.rules import check_local
from components.settings.section import Section, key
from components.settings.types import LocalFolder, Whole


class Scratch(Section):
    """Fast space for a job, removed when the job ends."""

    folder: LocalFolder | None = None
    """Folder on the fastest local disk of each node. TMPDIR names a job's own folder there, which is removed after the
    job; default: TMPDIR is /tmp, which is never emptied."""
    cache_days: Whole = key(ge=0, le=3650, default=30)
    """Jobs' caches (HF_HOME, TORCH_HOME and the like) stay on the same disk, in a folder of each user. Files unused for
    so many days are removed; 0: caches stay in the homes."""
    cache_disk_percent: Whole = key(ge=10, le=99, default=85)
    """When the disk is fuller than this, cached files that were not used lately are removed sooner."""

    def check(self, stack: Stack, report: Report) -> None:
        check_local(self, "folder", "scratch data would go over the network", stack, report)
        health = getattr(stack.config, "health", None)  # a pool has its cluster's
        if self.folder is not None and health is not None and not health.enabled:
            problem, breaks = "is set while tailrack:health.enabled is false", "no script would manage a job's folder"
            report.bad((self, "folder"), problem, breaks, "remove one of the two")
