"""The mounts of this machine."""

from __future__ import annotations

import re
from typing import NamedTuple

from components.node import kernel

_ESCAPED = re.compile(r"\\([0-7]{3})")


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
    return [_mount(line) for line in kernel.read("/proc/self/mountinfo").splitlines()]


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
