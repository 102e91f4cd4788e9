"""Rules for Slurm releases in one cluster: the controller must be the newest, and nodes at most a few releases older.

Source: Slurm's upgrade guide. A controller accepts nodes of the two releases before its own; from 24.11 on, of the
three before it. Since 25.11 `srun` uses the release of the machine that it runs on instead of the oldest of its step's
nodes (Slurm's commit 559f6f984f), so an older slurmd does not understand the head node's `srun`.
"""

import re

RELEASES = ("21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05", "26.11")
_THREE_BACK_SINCE = "24.11"
ONE_RELEASE_SINCE = "25.11"
# The first release with `slurmd --systemd`, whose `-Z` nodes a controller creates and deletes.
NEEDED = "23.11"
# The release to suggest when no machine has a usable one.
ADVISED = "25.11.8"


def release(version: str) -> str:
    """Return the release, `24.11` for `24.11.5-4`. Raise ValueError if the text does not start with one."""
    match = re.match(r"^(?:\d+:)?(\d\d\.\d\d)\b", version)
    if not match:
        raise ValueError(f"{version!r} is not a Slurm version like 24.11.5")
    return match[1]


def oldest_accepted(controller: str) -> str:
    """Return the oldest release of nodes that a controller of this version accepts.

    A release newer than the table counts as the one after its newest. Any other unknown release accepts only itself.
    """
    current = release(controller)
    if current not in RELEASES:
        return RELEASES[-3] if current > RELEASES[-1] else current
    back = 3 if current >= _THREE_BACK_SINCE else 2
    return RELEASES[max(0, RELEASES.index(current) - back)]


def oldest_reached(controller: str) -> str:
    """Return the oldest release of nodes on which the head node's commands start jobs.

    Older nodes that are still `oldest_accepted` only keep their running jobs during an upgrade.
    """
    current = release(controller)
    return current if current >= ONE_RELEASE_SINCE else oldest_accepted(controller)


def upgrade_path(present: str, wanted: str) -> list[str]:
    """Return the fewest releases to install in between, oldest first; none if `wanted` reads the state of `present`.

    Raise ValueError for an unknown release.
    """
    position, target = RELEASES.index(release(present)), RELEASES.index(release(wanted))
    stops: list[str] = []
    while RELEASES.index(oldest_accepted(RELEASES[target])) > position:
        # The newest release that reads this one's state; every release reads its predecessor's.
        position = max(
            index for index in range(position, target) if RELEASES.index(oldest_accepted(RELEASES[index])) <= position
        )
        stops.append(RELEASES[position])
    return stops


def release_of(version: str) -> str:
    """Return the release of a package's version: `24.11` for `1:24.11.5-4`."""
    return re.sub(r"^(?:\d+:)?(\d+\.\d+).*", r"\1", version)


def upstream_of(version: str) -> str:
    """Return the version without the distribution's epoch and suffix, `24.11.5` for Debian's `24.11.5-4`."""
    return re.sub(r"^(?:\d+:)?([^-+~]*).*", r"\1", version)


def is_older(release: str, other: str) -> bool:
    """Return whether a release is older than another one."""
    return _numbers(release) < _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def one_release_remedy(release: str) -> str:
    """Return the remedy for machines whose releases do not fit together."""
    return (
        f"install one release on all machines: set tailrack:slurm.release: {release} and release_sha256 "
        "(docs/day-2.md, One Slurm release)"
    )
