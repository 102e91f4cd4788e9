"""Make the list of packages of role mlflow's server: pinned, with digests of the wheels that head nodes can use.

Usage: python -m cli.mlflow_lock PYLOCK      what to install, on stdout; PYLOCK as PEP 751 has it

uv's own list has the digests of every wheel for every system, ten times as many; it goes to the head node with a step.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Of Ubuntu 22.04, Debian 12, Ubuntu 24.04 and Debian 13; the processors of head nodes, as wheels name them.
PYTHONS = ("310", "311", "312", "313")
PROCESSORS = ("x86_64", "aarch64")
# The oldest C library of these systems, Ubuntu 22.04's, is 2.35.
GLIBC = 35
# mlflow has all of its files; it is named for what it needs.
LEFT_OUT = frozenset({"mlflow-skinny"})
_WHEEL = re.compile(r"[^-]+-[^-]+(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<system>[^-]+)\.whl")
_SYSTEM = re.compile(r"manylinux(?:_2_(?P<glibc>\d+)|1|2010|2014)_(?P<processor>\w+)")


def main(words: Sequence[str]) -> int:
    """Print the list; 1 with a line for each package that some head node could not have."""
    lock = tomllib.loads(Path(words[0]).read_text(encoding="utf-8"))
    packages = [package for package in lock["packages"] if package["name"] not in LEFT_OUT]
    print(f"# Made by cli/mlflow_lock.py of {len(packages)} packages: not to be edited.")
    missing = []
    for package in packages:
        wheels = {_file(wheel): wheel["hashes"]["sha256"] for wheel in package["wheels"]}
        used = sorted({digest for name, digest in wheels.items() if any(fits(name, *each) for each in _machines())})
        missing += [f"{package['name']} has no wheel for {each}" for each in _without(package, wheels)]
        # uv says it of each; pip of these systems has no older Python.
        marker = re.sub(r"python_full_version >= '3\.10'(?: and )?", "", package.get("marker", ""))
        pinned = f"{package['name']}=={package['version']}" + (f" ; {marker}" if marker else "")
        print(" \\\n    ".join([pinned, *(f"--hash=sha256:{digest}" for digest in used)]))
    sys.stderr.writelines(f"{line}\n" for line in missing)
    return 1 if missing else 0


def _machines() -> Iterator[tuple[str, str]]:
    return ((python, processor) for python in PYTHONS for processor in PROCESSORS)


def _file(wheel: Mapping[str, Any]) -> str:
    return str(wheel.get("name") or wheel["url"].rpartition("/")[2])


def _without(package: Mapping[str, Any], wheels: Mapping[str, str]) -> Iterator[str]:
    """Machines that the package is for, by its marker, and that none of its wheels fits."""
    marker = package.get("marker", "")
    for python, processor in _machines():
        minor = int(python[1:])
        meant = all(
            {"<": minor < int(than), ">=": minor >= int(than), "==": minor == int(than)}[how]
            for how, than in re.findall(r"python_full_version (<|>=|==) '3\.(\d+)(?:\.\*)?'", marker)
        )
        if meant and not any(fits(name, python, processor) for name in wheels):
            yield f"Python 3.{minor} on {processor}"


def fits(name: str, python: str, processor: str) -> bool:
    """Whether a wheel of this name can be used by a Python (`313`) on a processor."""
    found = _WHEEL.fullmatch(name)
    if not found:
        return False
    if found["system"] != "any" and not any(_system(tag, processor) for tag in found["system"].split(".")):
        return False
    pythons, abis = found["python"].split("."), found["abi"].split(".")
    if "abi3" in abis:
        return any(re.fullmatch(r"cp3\d+", tag) and int(tag[3:]) <= int(python[1:]) for tag in pythons)
    return f"cp{python}" in (set(pythons) & set(abis)) or (
        "none" in abis and bool({"py3", f"cp{python}"} & set(pythons))
    )


def _system(tag: str, processor: str) -> bool:
    found = _SYSTEM.fullmatch(tag)
    return bool(found and found["processor"] == processor and int(found["glibc"] or 0) <= GLIBC)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
