"""Files of the kernel below /proc, /sys and /dev, mounts, and the limits of the first process's cgroup.

In a container these files may belong to no account, so `files` would refuse them.

The kernel shows a container the processors and the memory of its host (/proc/meminfo), unless LXCFS hides them. Both
versions of cgroups are read, because a host may have either, or one beside the other.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from components.node import files

_FOLDERS = ("/proc/", "/sys/", "/dev/")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_ROOT = "/sys/fs/cgroup"


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


class Mount(NamedTuple):
    """A mount.

    device   the numbers of its file system's device, such as `8:1`
    root     the folder of the file system that is mounted
    target   where it is mounted
    type     of the file system, such as `nfs4`
    options  of the mount and of the file system
    flags    options of the mount alone, as the kernel shows them
    """

    device: str
    root: str
    target: str
    type: str
    source: str
    options: frozenset[str]
    flags: str


def mounts() -> list[Mount]:
    """Return all mounts; of those at the same place, the one on top comes last."""
    return mounts_in(read("/proc/self/mountinfo"))


def mounts_in(text: str) -> list[Mount]:
    """Return the mounts in the text of /proc/self/mountinfo."""
    return [_mount(line) for line in text.splitlines()]


def mounts_at(target: str) -> list[Mount]:
    """Return the mounts at a place."""
    return [mount for mount in mounts() if mount.target == target]


def _mount(line: str) -> Mount:
    first, _, last = line.partition(" - ")
    _, _, device, root, target, options, *_ = first.split(" ")
    kind, source, more = (*last.split(" "), "", "")[:3]
    words = frozenset([*options.split(","), *more.split(",")])
    return Mount(device, _plain(root), _plain(target), kind, _plain(source), words, options)


def _plain(text: str) -> str:
    """Return a text with the spaces and other characters that the kernel writes as numbers."""
    return _ESCAPED.sub(lambda number: chr(int(number[1], 8)), text)


def cpu_limit() -> int | None:
    """Return the whole CPUs that the cgroup may use, at least 1; None if nothing limits them."""
    limits = [_quota(*text.split()) for text in _texts("", "cpu.max")]
    for folder in _folders("cpu"):
        period = read(f"{folder}/cpu.cfs_period_us").strip()
        limits.append(_quota(read(f"{folder}/cpu.cfs_quota_us").strip(), period))
    return min((limit for limit in limits if limit is not None), default=None)


def memory_limit_mb() -> int | None:
    """Return the memory in MB that the cgroup may use; None if nothing limits it.

    Version 1 writes a number near 2**63 for no limit, which is more than any machine has.
    """
    texts = [*_texts("", "memory.max"), *_texts("memory", "memory.limit_in_bytes")]
    return min((int(text) >> 20 for text in texts if text.isdecimal()), default=None)


def _quota(quota: str = "", period: str = "", *_rest: str) -> int | None:
    """Return the whole CPUs of a quota in a period. `max` and -1 stand for no quota."""
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None
    return max(int(quota) // int(period), 1)


def _texts(controller: str, name: str) -> Iterator[str]:
    return (read(f"{folder}/{name}").strip() for folder in _folders(controller))


def _folders(controller: str) -> Iterator[str]:
    """Yield the folders of the first process's cgroup of a controller and of all its parents, the innermost first.

    controller   a controller of version 1; empty for version 2
    """
    for line in read("/proc/1/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller not in controllers.split(",") or not path.startswith("/"):
            continue
        mount = f"{_ROOT}/{controller}" if controller else _ROOT
        parts = path.split("/")[1:]
        # systemd's own scope has its own limits. A path outside of this namespace contains "..".
        parts = [] if ".." in parts else [part for part in parts if part not in ("", "init.scope")]
        # Without its own namespace, a container sees its host's path, but only its own folder, mounted as the root.
        for length in range(len(parts), -1, -1):
            yield "/".join([mount, *parts[:length]])
