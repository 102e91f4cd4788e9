"""Compare versions on a node with releases that close published security holes. Only info: it never drains a node.

The table is as old as this release of tailrack: it contains only what the named bulletins say. Enroot, Pyxis and the
kernel have no row: no bulletin for Enroot and Pyxis was found, and distributions fix kernels under their own versions.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from components.validation.preflight.adapters import text_of
from components.validation.preflight.findings import Finding, finding

VERSIONS = "versions"
_MOST_BYTES = 32_000_000
_REMEDY = "update it (docs/day-2.md, updates)"
_NVIDIA = "https://nvidia.custhelp.com/app/answers/detail/a_id"
Version = tuple[int, ...]


class Fix(NamedTuple):
    """The release that closes a hole, the hole, and the address of the bulletin."""

    release: str
    hole: str
    source: str


@dataclass(frozen=True)
class Product:
    """A program with its fixes.

    parts    numbers of a version that name its branch; each branch has its own fixes
    fixes    the newest fix of each branch
    """

    name: str
    parts: int
    fixes: tuple[Fix, ...]

    def missing(self, version: str) -> Fix | None:
        """Return the fix that a version lacks: its branch's, or the newest if its branch gets no fixes."""
        own = numbers(version)
        if not own:
            return None
        for fix in self.fixes:
            if numbers(fix.release)[: self.parts] == own[: self.parts]:
                return fix if own < numbers(fix.release) else None
        newest = max(self.fixes, key=lambda fix: numbers(fix.release))
        return newest if own < numbers(newest.release) else None


def _driver(release: str, hole: str, bulletin: int) -> Fix:
    return Fix(release, hole, f"{_NVIDIA}/{bulletin}/")


def _slurm(release: str) -> Fix:
    tag = f"slurm-{release.replace('.', '-')}-1"
    return Fix(release, "CVE-2026-65107", f"https://github.com/SchedMD/slurm/releases/tag/{tag}")


# Bulletins of January (5747), May (5821) and September 2026 (5861).
DRIVER = Product(
    "NVIDIA driver",
    1,
    (
        _driver("535.309.01", "CVE-2026-24194", 5821),
        _driver("570.211.01", "CVE-2025-33219", 5747),
        _driver("580.178.04", "CVE-2026-47501", 5861),
        _driver("590.48.01", "CVE-2025-33219", 5747),
        _driver("595.91.07", "CVE-2026-47501", 5861),
        _driver("610.57.04", "CVE-2026-47501", 5861),
        _driver("615.71.09", "CVE-2026-47501", 5861),
    ),
)
TOOLKIT = Product("NVIDIA Container Toolkit", 0, (Fix("1.19.1", "CVE-2026-24260", f"{_NVIDIA}/5850/"),))
SLURM = Product("Slurm", 2, (_slurm("25.05.9"), _slurm("25.11.8")))
# Packages with upstream's versions. The library has the toolkit's version, and Enroot uses it without the toolkit.
UPSTREAM = {"nvidia-container-toolkit": TOOLKIT, "libnvidia-container-tools": TOOLKIT, "slurm-smd-slurmd": SLURM}
# Packages of distributions, which close holes without a new version and name them in their changelog.
OF_DISTRIBUTIONS = {"slurmd": SLURM}


def numbers(version: str) -> Version:
    """Return the numbers at the start of a version, such as (24, 11, 5) for 1:24.11.5-4."""
    found = re.match(r"(?:\d+:)?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


def installed(status: str) -> Mapping[str, str]:
    """Return the versions of installed packages that the tables name, from dpkg's status file."""
    versions = {}
    for name in (*UPSTREAM, *OF_DISTRIBUTIONS):
        _, begin, rest = f"\n{status}".partition(f"\nPackage: {name}\n")
        package = rest.partition("\n\n")[0]
        version = re.search(r"^Version: (\S+)$", package, re.MULTILINE)
        if begin and version and re.search(r"^Status: \S+ ok installed$", package, re.MULTILINE):
            versions[name] = version[1]
    return versions


def check_versions(root: Path = Path("/")) -> Iterator[Finding]:
    """Report each program that lacks the fix of a published hole."""
    if driver := text_of(root / "sys/module/nvidia/version").strip():
        yield from _lacking(DRIVER, driver)
    for name, version in installed(text_of(root / "var/lib/dpkg/status", _MOST_BYTES)).items():
        if name in UPSTREAM:
            yield from _lacking(UPSTREAM[name], version)
        elif fix := OF_DISTRIBUTIONS[name].missing(version):
            changelog = _changelog(root, name)
            if changelog and fix.hole not in changelog:
                yield from _lacking(OF_DISTRIBUTIONS[name], version)


def _lacking(product: Product, version: str) -> Iterator[Finding]:
    if fix := product.missing(version):
        seen = f"{product.name} {version} is older than {fix.release}, which closes {fix.hole} ({fix.source})"
        yield finding("info", VERSIONS, seen, _REMEDY)


def _changelog(root: Path, package: str) -> str:
    """Return a package's changelog; empty without one, as in small images."""
    try:
        with gzip.open(root / "usr/share/doc" / package / "changelog.Debian.gz") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError):
        return ""
