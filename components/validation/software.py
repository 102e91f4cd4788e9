"""Read the versions of NCCL, CUDA and nccl-tests that a measurement printed."""

import re

_VERSION = r"([0-9][0-9A-Za-z.+-]{0,30})"
_NCCL = re.compile(rf"NCCL version {_VERSION}", re.ASCII)
_TESTS = re.compile(rf"nccl-tests version {_VERSION}", re.ASCII)
# Numbers of ncclGetVersion: of the header that nccl-tests was built with, and of the library that it loaded.
_NUMBERS = re.compile(r"nccl-headers=(\d{3,6}) nccl-library=(\d{3,6})", re.ASCII)


def read_versions(output: str) -> dict[str, str]:
    """Return the versions by program; a program that printed none is missing.

    Source: NCCL prints `NCCL version 2.28.9+cuda13.0` (src/init.cc), where the second part is the CUDA release that it
    was built with. If ranks print different versions, all are returned, joined by commas.
    """
    nccl = list(dict.fromkeys(_NCCL.findall(output)))
    loaded = [_release(library) for _, library in _NUMBERS.findall(output)]
    versions = {
        "NCCL": [version.partition("+cuda")[0] for version in nccl] or loaded,
        "CUDA": [cuda for version in nccl if (cuda := version.partition("+cuda")[2])],
        "nccl-tests": _TESTS.findall(output),
    }
    return {name: ", ".join(dict.fromkeys(values)) for name, values in versions.items() if values}


def loaded_nccl(output: str) -> str:
    """Return a sentence about the NCCL library that ranks loaded; empty if the output does not name it."""
    release = read_versions(output).get("NCCL", "")
    headers = ", ".join(dict.fromkeys(_release(header) for header, _ in _NUMBERS.findall(output)))
    built = f"; nccl-tests was built with {headers}" if headers and headers != release else ""
    return f" The ranks loaded NCCL {release}{built}." if release else ""


def _release(number: str) -> str:
    """Return 2.27.8 for 22708, and 2.7.8 for 2708: the minor release has two digits since 2.9."""
    value = int(number)
    major = value // (10_000 if value >= 10_000 else 1_000)
    return f"{major}.{value // 100 % (100 if value >= 10_000 else 10)}.{value % 100}"
