"""One release of Slurm for all machines, whatever their distributions have: what the config may say of it."""

import re

from components.roles.slurm.versions import RELEASES, release
from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.types import refuse

OLDEST = "23.11"
"""The first release whose slurmd has `--systemd`, and with `-Z` a node that a controller creates and deletes."""

UPSTREAM = "https://download.schedmd.com/slurm"


def address(version: str, source: str | None) -> str:
    """Where the source of a release comes from: what the config says, or SchedMD's own place."""
    return source or f"{UPSTREAM}/slurm-{version}.tar.bz2"


def check_release_number(value: object) -> object:
    """A release with all three numbers, of those that nodes can have."""
    if isinstance(value, float) or (isinstance(value, str) and re.fullmatch(r"\d\d\.\d\d", value)):
        refuse(
            "is no whole release", "nobody would know which of them is meant", f"write its last number too: {value}.1"
        )
    if not isinstance(value, str) or not re.fullmatch(r"\d\d\.\d\d\.\d{1,2}", value):
        raise ValueError("not a release")
    known = [each for each in RELEASES if each >= OLDEST]
    if release(value) not in known:
        refuse(
            f"is of none of the releases that are known here ({', '.join(known)})",
            "its nodes might not speak with its controller",
            f"write one of {known[0]} to {known[-1]}",
        )
    return value


def check_source(value: str) -> str:
    """An address or a path of an archive, in characters that no shell reads."""
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9._~+-]+)+[.]tar[.](gz|bz2|xz)", value):
        raise ValueError("neither an address nor a path")
    return value


def check_packages(value: str) -> str:
    """An address or a path of a folder, in characters that no shell reads."""
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9_~+-][A-Za-z0-9._~+-]*)+", value):
        raise ValueError("neither an address nor a path")
    return value


_ROOT = "whatever comes from there would be run as root"
# Each with what it needs beside it, and how that is written.
_KNOWN_BY = (
    ("release_source", "release_sha256", "write the SHA-256 of that file, from the release's page and not from it"),
    ("release_packages", "release_packages_sha256", "write the SHA-256 of the SHA256SUMS there"),
    ("release_packages_sha256", "release_packages", "write where the packages of that list are"),
)


def check_release(slurm: Draft, report: Report) -> None:
    """Report a release that nothing is known by, and what belongs to a release where none is asked for."""
    asked, there = "release" in slurm.raw, slurm.raw.keys()
    if asked and not there & {name for pair in _KNOWN_BY for name in pair[:2]}:
        what = "is missing, and the source of a release is known by it"
        fix = "write the SHA-256 of that file, from the release's page and not from the file itself"
        report.add(slurm.at("release_sha256"), what, _ROOT, fix)
    for name, needed, fix in _KNOWN_BY if asked else ():
        if name in there and needed not in there:
            report.add(slurm.at(needed), f"is missing, and {name} is there", _ROOT, fix)
    for name in () if asked else sorted({name for pair in _KNOWN_BY for name in pair[:2]} & there):
        fix = "write tailrack:slurm.release too, or take it out"
        report.add(slurm.at(name), "is there without a release", "each machine has its distribution's Slurm", fix)
