"""Compare releases of Slurm."""

from __future__ import annotations

import re

# The first release with `slurmd --systemd`, whose `-Z` nodes a controller creates and deletes.
NEEDED = "23.11"
# The release to suggest when no machine has a usable one.
ADVISED = "25.11.8"


def release_of(version: str) -> str:
    """Return the release of a package's version: `24.11` for `1:24.11.5-4`."""
    return re.sub(r"^(?:\d+:)?(\d+\.\d+).*", r"\1", version)


def upstream_of(version: str) -> str:
    """Return the version without the distribution's suffix."""
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
