"""Slurm's steps on this machine, from the titles of their processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.node import kernel

_TITLE = re.compile(r"slurmstepd: \[([0-9]+)\.(?:([^\]]*)\])?")
_OF_ROOT = re.compile(r"^Uid:\t0\t", re.MULTILINE)


def steps() -> Iterator[tuple[str, int, str]]:
    """Yield the process, the job and the name of each step, such as `batch`, `0` or `0+1`.

    The name is empty if the title is cut off.
    """
    for process in filter(str.isdecimal, kernel.names_in("/proc")):
        title = _TITLE.match(kernel.read(f"/proc/{process}/cmdline"))
        # A user's program can give itself the same title.
        if title and _OF_ROOT.search(kernel.read(f"/proc/{process}/status")):
            yield process, int(title[1]), title[2] or ""
