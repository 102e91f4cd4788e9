"""Read the versions of NCCL, CUDA and nccl-tests that a measurement printed."""

import re

_VERSION = r"([0-9][0-9A-Za-z.+-]{0,30})"
_NCCL = re.compile(rf"NCCL version {_VERSION}", re.ASCII)
_TESTS = re.compile(rf"nccl-tests version {_VERSION}", re.ASCII)


def read_versions(output: str) -> dict[str, str]:
    """Return the versions by program; a program that printed none is missing.

    Source: NCCL prints `NCCL version 2.28.9+cuda13.0` (src/init.cc), where the second part is the CUDA release that it
    was built with. If ranks print different versions, all are returned, joined by commas.
    """
    nccl = list(dict.fromkeys(_NCCL.findall(output)))
    versions = {
        "NCCL": [version.partition("+cuda")[0] for version in nccl],
        "CUDA": [cuda for version in nccl if (cuda := version.partition("+cuda")[2])],
        "nccl-tests": _TESTS.findall(output),
    }
    return {name: ", ".join(dict.fromkeys(values)) for name, values in versions.items() if values}
