"""Print the pinned packages of role mlflow's server, with the digests of wheels that head nodes can use.

Usage: python -m cli.mlflow_lock PYLOCK      prints requirements; PYLOCK is a lock file of PEP 751

uv's list has ten times as many digests, of every wheel for every system; a step sends the list to the head node.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

# The Pythons of Ubuntu 22.04, Debian 12, Ubuntu 24.04 and Debian 13, and the processors of head nodes.
PYTHONS = ("310", "311", "312", "313")
PROCESSORS = ("x86_64", "aarch64")
# The oldest C library of these systems, Ubuntu 22.04's, is 2.35.
GLIBC = 35
# Package mlflow contains all files of mlflow-skinny, and depends on it only for its dependencies.
LEFT_OUT = frozenset({"mlflow-skinny"})


def main(argv: Sequence[str]) -> int:
    """Print the list; return 1, with a line for each package that lacks a wheel for some head node."""
    lock = tomllib.loads(Path(argv[0]).read_text(encoding="utf-8"))
    packages = [package for package in lock["packages"] if package["name"] not in LEFT_OUT]
    print(f"# Made by cli/mlflow_lock.py of {len(packages)} packages: not to be edited.")
    missing = []
    for package in packages:
        wheels = {_file(wheel): wheel["hashes"]["sha256"] for wheel in package["wheels"]}
        used = sorted(
            {digest for name, digest in wheels.items() if any(fits(name, *machine) for machine in _machines())}
        )
        missing += [f"{package['name']} has no wheel for {machine}" for machine in _without_wheel(package, wheels)]
        # uv adds this marker to each package; no head node has an older Python.
        marker = re.sub(r"python_full_version >= '3\.10'(?: and )?", "", package.get("marker", ""))
        pinned = f"{package['name']}=={package['version']}" + (f" ; {marker}" if marker else "")
        print(" \\\n    ".join([pinned, *(f"--hash=sha256:{digest}" for digest in used)]))
    sys.stderr.writelines(f"{line}\n" for line in missing)
    return 1 if missing else 0


def _machines() -> Iterator[tuple[str, str]]:
    return ((python, processor) for python in PYTHONS for processor in PROCESSORS)


def _file(wheel: Mapping[str, Any]) -> str:
    return str(wheel.get("name") or wheel["url"].rpartition("/")[2])


def _without_wheel(package: Mapping[str, Any], wheels: Mapping[str, str]) -> Iterator[str]:
    """Give the machines that the package's marker includes and none of its wheels fits."""
    marker = Marker(package["marker"]) if "marker" in package else None
    for python, processor in _machines():
        version = f"3.{python[1:]}"
        names = {"python_full_version": f"{version}.0", "python_version": version, "sys_platform": "linux"}
        machine = {**names, "platform_machine": processor, "platform_python_implementation": "CPython"}
        if (marker is None or marker.evaluate(machine)) and not any(fits(name, python, processor) for name in wheels):
            yield f"Python {version} on {processor}"


def fits(name: str, python: str, processor: str) -> bool:
    """Return whether a Python (`313`) on a processor can use a wheel of this name."""
    return not _tags(python, processor).isdisjoint(parse_wheel_filename(name)[3])


@cache
def _tags(python: str, processor: str) -> frozenset[Tag]:
    version = (3, int(python[1:]))
    old = [f"manylinux{name}_{processor}" for name in ("2014", "2010", "1")]
    platforms = [*(f"manylinux_2_{minor}_{processor}" for minor in range(GLIBC, 4, -1)), *old]
    compatible = compatible_tags(version, f"cp{python}", platforms)
    return frozenset([*cpython_tags(version, platforms=platforms), *compatible])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
