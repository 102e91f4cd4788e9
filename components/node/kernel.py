"""Files of the kernel below /proc, /sys and /dev, which no account can replace.

In a container they may belong to no account, so `files` would refuse them.
"""

from __future__ import annotations

from pathlib import Path

from components.node import files

_FOLDERS = ("/proc/", "/sys/", "/dev/")


def read(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return _place(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def write(path: str, text: str) -> bool:
    """Write a text to a file, and return whether the kernel took it."""
    try:
        _place(path).write_text(text, encoding="utf-8")
    except OSError:
        return False
    return True


def exists(path: str) -> bool:
    """Return whether a path exists."""
    return _place(path).exists()


def names_in(path: str) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder."""
    try:
        return sorted(entry.name for entry in _place(path).iterdir())
    except OSError:
        return []


def _place(path: str) -> Path:
    if not f"{path}/".startswith(_FOLDERS):
        raise ValueError(f"{path} is no file of the kernel")
    return Path(files.on_disk(path))
