"""Checks of the file systems: the share must answer, and disks need free space.

Role mounts checks the mounts (storage.mounts) every minute. The checks here read its results, so a server that hangs
cannot stop them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from components.node import kernel, systemd
from components.node.run import attempt
from components.node.waiting import within
from components.validation.preflight.findings import Finding, finding
from components.validation.this_node import TOO_LONG, load
from components.validation.untrusted import read_or_default

SHARE, DISK = "share", "disk"
ANSWER_SECONDS = 10
# A disk is full if it exceeds both limits: the last percent of a large disk has room for many jobs.
FULL_SHARE, FULL_BYTES = 0.95, 2 * 2**30
LEAST_INODES_SHARE = 0.01
# The folders that roles write to, and /var/spool/slurmd, where slurmd stores batch scripts.
PLACES = ("/", "/var", "/var/spool/slurmd", "/var/lib/tailrack", "/tmp", "/var/tmp")  # noqa: S108
# The provider's volume has users' homes and the cluster's files.
PLACES_OF_POD = ("/workspace", *PLACES)
_REMOUNT = "run 'systemctl restart {unit}' on the node; see 'journalctl -u {unit}' and the head node's NFS server"
Mounts = Mapping[str, kernel.Mount]
MOUNT = "mount"
# The mounts that the node must have, and the results. Both are JSON.
WANTED, RESULTS = Path("etc/tailrack/mounts.json"), Path("run/tailrack/mounts.json")
# Seconds after which results are too old.
OLD_SECONDS = 600
_CHECKER = "see 'journalctl -u tailrack-mounts' on the node, and run 'tailrack-minute mounts' there"


def read_mounts(text: str) -> Mounts:
    """Return the topmost mount of each mount point in the text of /proc/self/mountinfo."""
    return {mount.target: mount for mount in kernel.mounts_in(text)}


def answers(path: str, seconds: float = ANSWER_SECONDS) -> bool | None:
    """Whether a folder can be accessed; None after a timeout, which leaves a process behind."""
    ended = attempt("stat", "-f", "--", path, limit=seconds, quiet=True)
    return None if ended.status == TOO_LONG else ended.ok


def check_share(
    share: str, mounts: Callable[[], Mounts], answer: Callable[[str], bool | None] = answers
) -> Iterator[Finding]:
    """Check that the share is mounted. An automount mounts it on access, so the access comes first."""
    if not share:
        return
    unit = f"{systemd.name_of_path(share)}.mount"
    answered = answer(share)
    if answered is None:
        remedy = "check that its server (the head node, or storage.node) is up, and the path to it ('tailscale ping')"
        yield finding("error", SHARE, f"{share} does not answer within {ANSWER_SECONDS} s", remedy)
    elif not answered or (mount := mounts().get(share)) is None or mount.type == "autofs":
        yield finding("error", SHARE, f"{share} is not mounted", _REMOUNT.format(unit=unit))


def check_disks(mounts: Mounts, places: tuple[str, ...] = PLACES, root: Path = Path("/")) -> Iterator[Finding]:
    """Check free space, free inodes and write access of each file system that holds one of the places."""
    devices = set()
    for place in places:
        path = root / place.strip("/")
        try:
            device, status = path.stat().st_dev, os.statvfs(path)
        except OSError:
            continue
        if device in devices:
            continue
        devices.add(device)
        total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
        if total and free < FULL_BYTES and free < (1 - FULL_SHARE) * total:
            seen = f"{place} is full: {free / 2**30:.1f} GiB of {total / 2**30:.1f} GiB are free"
            remedy = f"find large folders on the node: 'du -xh --max-depth=2 {place} | sort -h | tail'; free space"
            yield finding("error", DISK, seen, remedy)
        if status.f_files and status.f_favail < LEAST_INODES_SHARE * status.f_files:
            yield finding(
                "error", DISK, f"{place} has no room for more files ({status.f_favail} of {status.f_files} are free)",
                f"find folders with many files on the node: 'du -x --inodes --max-depth=2 {place} | sort -n | tail'",
            )  # fmt: skip
        if status.f_flag & os.ST_RDONLY or (place in mounts and "ro" in mounts[place].options):
            yield finding(
                "error", DISK, f"{place} is read-only",
                "the kernel does this after a disk error: see 'dmesg | grep -iE \"ext4|xfs|nvme|I/O error\"', then "
                "check the disk and restart the node",
            )  # fmt: skip


def check_mounts(root: Path, now: float) -> Iterator[Finding]:
    """Yield a finding for each mount with a problem: an error if no job can run without it, else a warning."""
    if not (root / WANTED).exists():
        return
    results = read_or_default(_Results, load(root / RESULTS))
    if not within(OLD_SECONDS, results.time, now):
        yield finding("warning", MOUNT, "the mounts of storage.mounts are not checked", _CHECKER)
        return
    for mount in results.mounts:
        if mount.problem:
            yield finding(
                "error" if mount.required else "warning", MOUNT, f"{mount.path} {mount.problem}", mount.remedy
            )


@dataclass(frozen=True)
class _Mount:
    path: str
    problem: str
    remedy: str
    required: bool


@dataclass(frozen=True)
class _Results:
    """The content of RESULTS; `time` in Unix seconds."""

    time: float = 0
    mounts: tuple[_Mount, ...] = ()
