"""Distributions of lab machines: where their packages come from, and how a root file system is built."""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.profiles.machine import Like, OfDistribution


@dataclass(frozen=True)
class Distribution:
    """A release of Debian or Ubuntu.

    release      its code name, which its suites are called after
    image        its name in registries
    vendor       `Origin:` of its archive
    setting      environment variable that names a mirror of its archive
    components   of the archive, as sources.list has them
    script       debootstrap's; those of newer releases are the same
    keyring      package with the keys of its archive, and their file
    testing      moves on still: its updates are in itself, and a mirror may have it as it was weeks ago
    """

    release: str
    image: str
    vendor: str
    setting: str
    components: str
    script: str
    keyring: tuple[str, str]
    testing: bool = False


def _debian(release: str, *, testing: bool = False) -> Distribution:
    return Distribution(
        release,
        image=f"debian:{release}-slim",
        vendor="Debian",
        setting="TAILRACK_MIRROR",
        components="main",
        script="sid",
        keyring=("debian-archive-keyring", "/usr/share/keyrings/debian-archive-keyring.gpg"),
        testing=testing,
    )


def _ubuntu(release: str, number: str) -> Distribution:
    return Distribution(
        release,
        image=f"ubuntu:{number}",
        vendor="Ubuntu",
        setting="TAILRACK_UBUNTU_MIRROR",
        # Slurm, munge and NFS-Ganesha are in universe.
        components="main universe",
        script="gutsy",
        keyring=("ubuntu-keyring", "/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
    )


USUAL = _debian("trixie")
"""Return the default distribution."""

OTHERS: Mapping[OfDistribution, Distribution] = {
    "bookworm": _debian("bookworm"),
    "forky": _debian("forky", testing=True),
    "ubuntu-24.04": _ubuntu("noble", "24.04"),
}


def distribution_of(like: Like) -> Distribution:
    """Return the distribution of machines with a profile."""
    return next((each for name, each in OTHERS.items() if name == like), USUAL)
