"""What the section `scratch` of the config says: where jobs have room on a disk of their node's own."""

from collections.abc import Collection
from pathlib import PurePosixPath

from components.settings.draft import Draft
from components.settings.local_folder import PLACES, LocalFolder
from components.settings.problems import Report
from components.settings.section import Section, key


class Scratch(Section):
    """Room for what a job needs fast, which is gone with the job."""

    folder: LocalFolder | None = key(
        "folder on the fastest disk of each node's own. A job has a folder in it of its own, which TMPDIR names and "
        "which is removed after it; left out, TMPDIR is /tmp, which nobody empties",
        wants="an absolute path",
        breaks="jobs would have no room there",
        fix=f"write {PLACES}",
        default=None,
    )


def check_scratch(scratch: Draft, health: Draft, share: Collection[str], report: Report) -> None:
    """Report a folder on the share, and one that nothing would make or empty.

    health   the section whose scripts run before and after each job
    share    the share's two folders, as far as they hold
    """
    at, folder = scratch.at("folder"), scratch.value("folder")
    if not isinstance(folder, str):
        return
    if any(PurePosixPath(folder).is_relative_to(place) for place in share):
        what = f"{report.value(at, folder)} is on the share"
        report.add(
            at, what, "what should be fast would go over the network", "write a folder on a disk of the nodes' own"
        )
    if health.value("enabled") is False:
        what = f"{report.value(at, folder)} is named, and tailrack:health.enabled is false"
        breaks = "no script would make a job's folder, nor remove it"
        report.add(at, what, breaks, "leave out one of the two")
