"""The distribution of this machine, and its packages, read from dpkg's own records: a step asks a dozen times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from components.node import files
from components.node.run import attempt, run

_STATUS, _UPDATES = "/var/lib/dpkg/status", "/var/lib/dpkg/updates"
_FORMAT = "${Package} ${db:Status-Status} ${Version}\\n"
# A removed package that left its configuration has another state, and a version too.
_INSTALLED = "installed"


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the given packages that are installed, by name."""
    names = tuple(names)
    # dpkg keeps updates beside the file while it works, and after it was killed.
    whole = "" if files.names_in(_UPDATES) else files.read(_STATUS)
    versions = _versions(whole) if whole else _ask(names)
    return {name: versions[name] for name in names if name in versions}


# Most calls of a step find the same text.
@lru_cache(maxsize=1)
def _versions(status: str) -> Mapping[str, str]:
    versions = {}
    for package in status.split("\n\n"):
        if _field(package, "Status").endswith(f" {_INSTALLED}"):
            versions[_field(package, "Package")] = _field(package, "Version")
    return versions


def _field(package: str, name: str) -> str:
    """Return a field's first line. Other lines begin with a space."""
    return f"\n{package}".partition(f"\n{name}: ")[2].partition("\n")[0].strip()


def _ask(names: tuple[str, ...]) -> Mapping[str, str]:
    if not names:
        return {}
    rows = map(str.split, attempt("dpkg-query", "-W", f"-f={_FORMAT}", *names, quiet=True).output.splitlines())
    return {row[0]: row[2] if len(row) > 2 else "" for row in rows if row[1:2] == [_INSTALLED]}


def os_release() -> Mapping[str, str]:
    """Return the values of /etc/os-release."""
    lines = files.lines(files.followed("/etc/os-release"))
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {name: value.strip("\"'") for name, value in pairs}


def architecture() -> str:
    """Return the architecture of packages, such as amd64."""
    return run("dpkg", "--print-architecture").strip()
