"""The releases of Enroot and Pyxis to install, and their addresses.

The checksums are not here, because no second source could confirm those of upstream's releases. They come from the
config or from the user's own folder.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

ENROOT = "4.1.2"
PYXIS = "0.24.0"
UPSTREAM = "https://github.com/NVIDIA"

_SOURCE = f"v{PYXIS}.tar.gz"
# The second package of each pair gives two of Enroot's programs the capabilities that users need to import images.
_PACKAGES = {
    architecture: (f"enroot_{ENROOT}-1_{architecture}.deb", f"enroot+caps_{ENROOT}-1_{architecture}.deb")
    for architecture in ("amd64", "arm64")
}
FILES = (*_PACKAGES["amd64"], _SOURCE)
"""The files to install, by upstream's names: Enroot's packages, and Pyxis as source."""
FILES_ARM = _PACKAGES["arm64"]
"""Enroot's packages for arm64 machines, such as GH200."""

SUMS = "SHA256SUMS"
"""The file with checksums in a user's own folder, in the format of sha256sum."""

MOST_BYTES = 1_000_000
"""Largest file: files from a folder are sent with the head node's step."""


def url_of(base: str, file: str) -> str:
    """Return a file's address: at upstream's own places, or directly below another base address."""
    path = "pyxis/archive/refs/tags/" if file == _SOURCE else f"enroot/releases/download/v{ENROOT}/"
    return f"{base}/{path if base == UPSTREAM else ''}{file}"


def required_files(names: Collection[str]) -> tuple[str, ...]:
    """Return all files to install: both packages of each architecture in `names`, and Pyxis."""
    packages = [pair for pair in _PACKAGES.values() if not {*pair}.isdisjoint(names)]
    return (*(file for pair in packages or [_PACKAGES["amd64"]] for file in pair), _SOURCE)


def sums_of(folder: Path) -> Mapping[str, str]:
    """Return the checksums in a folder's SHA256SUMS, by file name.

    Raises ValueError with the problem if a file is missing, too large, or does not match the list.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise ValueError(f"has no readable {SUMS}") from None
    sums = {match[2]: match[1] for line in lines if (match := re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line))}
    for file in required_files(sums):
        if file not in sums:
            raise ValueError(f"has a {SUMS} without {file}")
        try:
            content = (folder / file).read_bytes()
        except OSError:
            raise ValueError(f"has no readable {file}") from None
        if len(content) > MOST_BYTES:
            raise ValueError(f"has a {file} of more than {MOST_BYTES} bytes")
        if hashlib.sha256(content).hexdigest() != sums[file]:
            raise ValueError(f"has a {file} that does not match its {SUMS}")
    return {file: sums[file] for file in required_files(sums)}
