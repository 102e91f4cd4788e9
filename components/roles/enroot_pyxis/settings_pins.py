"""Which releases of Enroot and Pyxis are installed, and where they come from.

No checksum stands here: those of upstream's releases could not be had from a second source when this was written, and a
checksum that nobody compared would only look like one. They come from the config, or from the user's own folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

ENROOT = "4.1.2"
PYXIS = "0.24.0"
UPSTREAM = "https://github.com/NVIDIA"

_SOURCE = f"v{PYXIS}.tar.gz"
# The second of each gives two of Enroot's programs the capabilities without which plain users can import no image.
_PACKAGES = {
    architecture: (f"enroot_{ENROOT}-1_{architecture}.deb", f"enroot+caps_{ENROOT}-1_{architecture}.deb")
    for architecture in ("amd64", "arm64")
}
FILES = (*_PACKAGES["amd64"], _SOURCE)
"""What is installed, by upstream's own file names: Enroot's packages, and Pyxis as source."""
FILES_ARM = _PACKAGES["arm64"]
"""Enroot's packages for machines of the other architecture, such as GH200."""

SUMS = "SHA256SUMS"
"""The file of a folder of one's own that has the checksums of the others, as sha256sum writes it."""

MOST_BYTES = 1_000_000
"""Of one file: what comes from a folder travels within the head node's step."""


def url_of(base: str, file: str) -> str:
    """Where a file is below a base address: upstream's own places, or all of them side by side."""
    path = "pyxis/archive/refs/tags/" if file == _SOURCE else f"enroot/releases/download/v{ENROOT}/"
    return f"{base}/{path if base == UPSTREAM else ''}{file}"


def wanted(named: Collection[str]) -> tuple[str, ...]:
    """Return what has to be there besides what is named: the packages of its architectures, all of them, and Pyxis."""
    found = [packages for packages in _PACKAGES.values() if not {*packages}.isdisjoint(named)]
    return (*(file for packages in found or [_PACKAGES["amd64"]] for file in packages), _SOURCE)


def sums_of(folder: Path) -> Mapping[str, str]:
    """Return the checksums that a folder's SHA256SUMS has, by file name.

    Raises ValueError, with what is wrong, where a file is missing, too large, or another one than the list says.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise ValueError(f"has no {SUMS} that can be read") from None
    found = {match[2]: match[1] for line in lines if (match := re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line))}
    for file in wanted(found):
        if file not in found:
            raise ValueError(f"has a {SUMS} without {file}")
        try:
            content = (folder / file).read_bytes()
        except OSError:
            raise ValueError(f"has no {file} that can be read") from None
        if len(content) > MOST_BYTES:
            raise ValueError(f"has a {file} of more than {MOST_BYTES} bytes")
        if hashlib.sha256(content).hexdigest() != found[file]:
            raise ValueError(f"has a {file} that is not the one in its {SUMS}")
    return {file: found[file] for file in wanted(found)}
