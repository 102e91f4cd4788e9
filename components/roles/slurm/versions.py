"""Which Slurm releases may be in one cluster: the controller is the newest, nodes a few releases older at most.

Source: Slurm's upgrade guide. A controller accepts nodes of the two releases before its own, and of the three
before it from 24.11 on. Since 25.11 `srun` speaks the release of the machine that it runs on, and no longer the oldest
of its step's nodes (Slurm's commit 559f6f984f): one of the head node is not understood by an older slurmd.
"""

from __future__ import annotations

import re

RELEASES = ("21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05", "26.11")
_THREE_BACK_SINCE = "24.11"
ONE_RELEASE_SINCE = "25.11"


def release(version: str) -> str:
    """`24.11` of `24.11.5-4`. Raises ValueError for anything that does not start with a release."""
    match = re.match(r"^(?:\d+:)?(\d\d\.\d\d)\b", version)
    if not match:
        raise ValueError(f"{version!r} is not a Slurm version like 24.11.5")
    return match[1]


def upstream(package_version: str) -> str:
    """`24.11.5` of Debian's `24.11.5-4`."""
    return package_version.split(":", 1)[-1].split("-", 1)[0]


def oldest_accepted(controller: str) -> str:
    """Return the oldest release a controller of this version accepts nodes of.

    A release that is not in the table is taken as the newest known or as its own oldest, never as anything goes.
    """
    own = release(controller)
    if own not in RELEASES:
        return RELEASES[-3] if own > RELEASES[-1] else own
    back = 3 if own >= _THREE_BACK_SINCE else 2
    return RELEASES[max(0, RELEASES.index(own) - back)]


def oldest_reached(controller: str) -> str:
    """Return the oldest release of nodes whose jobs the commands of a controller's machine start.

    Nodes that are older and still `oldest_accepted` are fit for a change of release alone: what runs on them goes on.
    """
    own = release(controller)
    return own if own >= ONE_RELEASE_SINCE else oldest_accepted(controller)


def way(present: str, wanted: str) -> list[str]:
    """Return the releases to go by way of, oldest first and as few as can be; none where `wanted` reads `present`.

    Raises ValueError where a release is not known here.
    """
    here, there = RELEASES.index(release(present)), RELEASES.index(release(wanted))
    stops: list[str] = []
    while RELEASES.index(oldest_accepted(RELEASES[there])) > here:
        # The newest that takes this one; each takes the one before it.
        here = max(index for index in range(here, there) if RELEASES.index(oldest_accepted(RELEASES[index])) <= here)
        stops.append(RELEASES[here])
    return stops
