"""Keys for one release of Slurm on all machines, independent of their distributions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from components.roles.slurm.versions import NEEDED, RELEASES, release
from components.settings.problems import Report
from components.settings.types import refuse

if TYPE_CHECKING:
    from components.roles.slurm.settings import Slurm

UPSTREAM = "https://download.schedmd.com/slurm"


def address(version: str, source: str | None) -> str:
    """Return the address of a release's source: the config's, or SchedMD's."""
    return source or f"{UPSTREAM}/slurm-{version}.tar.bz2"


def check_release_number(value: object) -> object:
    """Return a complete release number that nodes support."""
    if isinstance(value, float) or (isinstance(value, str) and re.fullmatch(r"\d\d\.\d\d", value)):
        refuse("is not a complete release", "the exact release would be unknown", f"add its last number: {value}.1")
    if not isinstance(value, str) or not re.fullmatch(r"\d\d\.\d\d\.\d{1,2}", value):
        raise ValueError("not a release")
    supported = [version for version in RELEASES if version >= NEEDED]
    if release(value) not in supported:
        refuse(
            f"is not one of the supported releases ({', '.join(supported)})",
            "nodes and slurmctld might not understand each other",
            f"write one from {supported[0]} to {supported[-1]}",
        )
    return value


def check_source(value: str) -> str:
    """Return an archive's address or path, without characters that a shell interprets."""
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9._~+-]+)+[.]tar[.](gz|bz2|xz)", value):
        raise ValueError("neither an address nor a path")
    return value


def check_packages(value: str) -> str:
    """Return a folder's address or path, without characters that a shell interprets."""
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9_~+-][A-Za-z0-9._~+-]*)+", value):
        raise ValueError("neither an address nor a path")
    return value


_ROOT = "root would run unverified code"
# A key, the key that it requires, and how to write that one.
_REQUIREMENTS = (
    ("release_source", "release_sha256", "write the SHA-256 of that file, from the release's page and not from it"),
    ("release_packages", "release_packages_sha256", "write the SHA-256 of the SHA256SUMS there"),
    ("release_packages_sha256", "release_packages", "write the place of the packages in that list"),
)


def check_release(slurm: Slurm, report: Report) -> None:
    """Report a release without a checksum, and keys for a release without `release`."""
    has_release, keys = slurm.release is not None, slurm.model_fields_set
    if has_release and not keys & {name for pair in _REQUIREMENTS for name in pair[:2]}:
        problem = "is missing, so the source of the release cannot be verified"
        fix = "write the SHA-256 of that file, from the release's page and not from the file itself"
        report.add(report.at(slurm, "release_sha256"), problem, _ROOT, fix)
    for name, required, fix in _REQUIREMENTS if has_release else ():
        if name in keys and required not in keys:
            report.add(report.at(slurm, required), f"is missing, but {name} is set", _ROOT, fix)
    for name in () if has_release else sorted({name for pair in _REQUIREMENTS for name in pair[:2]} & keys):
        fix = "write tailrack:slurm.release too, or remove this key"
        breaks = "each machine would get its distribution's Slurm"
        report.add(report.at(slurm, name), "is set without a release", breaks, fix)
