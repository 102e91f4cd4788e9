"""Where a node's programs write: the share, which has to answer, and its own disks, which need room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding

SHARE, DISK = "share", "disk"
ANSWER_SECONDS = 10
# Full is a disk with both of these; a large one has room for many jobs in its last percent.
FULL_SHARE, FULL_BYTES = 0.95, 2 * 2**30
LEAST_INODES_SHARE = 0.01
# Besides the places that roles write in, /var/spool/slurmd is where slurmd keeps batch scripts.
PLACES = ("/", "/var", "/var/spool/slurmd", "/var/lib/tailrack", "/tmp", "/var/tmp")  # noqa: S108
_AGAIN = "'systemctl restart {unit}' on the node; see 'journalctl -u {unit}', and the head node's NFS server"

Mounts = dict[str, tuple[str, frozenset[str]]]


def read_mounts(text: str) -> Mounts:
    """Return mount points of /proc/self/mountinfo: the type and the options of what is on top there."""
    found: Mounts = {}
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) < 10 or "-" not in words[6:]:
            continue
        kind = words[words.index("-", 6) + 1]
        options = {*words[5].split(","), *words[-1].split(",")}
        found[words[4].replace("\\040", " ")] = (kind, frozenset(options))
    return found


def answers(path: str, seconds: float = ANSWER_SECONDS) -> bool | None:
    """Whether a folder can be looked at in time; None where it does not answer. What hangs is left behind."""
    try:
        process = subprocess.Popen(
            ["stat", "-f", "--", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError:
        return False
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        return None


def check_share(
    share: str, mounts: Callable[[], Mounts], answer: Callable[[str], bool | None] = answers
) -> Iterator[Finding]:
    """The share where it should be mounted (by an automount, so it is asked before it is looked for)."""
    if not share:
        return
    unit = f"{share.strip('/').replace('-', chr(92) + 'x2d').replace('/', '-')}.mount"
    there = answer(share)
    if there is None:
        yield finding(
            "error", SHARE, f"{share} gives no answer in {ANSWER_SECONDS} s",
            "see whether the head node and its NFS server are up, and the path to it ('tailscale ping')",
        )  # fmt: skip
    elif not there or mounts().get(share, ("autofs", frozenset()))[0] == "autofs":
        yield finding("error", SHARE, f"{share} is not mounted", _AGAIN.format(unit=unit))


def check_disks(mounts: Mounts, places: tuple[str, ...] = PLACES, root: Path = Path("/")) -> Iterator[Finding]:
    """Room, inodes and whether they can be written, of each file system that one of the places is on."""
    seen = set()
    for place in places:
        path = root / place.strip("/")
        try:
            device, about = path.stat().st_dev, os.statvfs(path)
        except OSError:
            continue
        if device in seen:
            continue
        seen.add(device)
        total, free = about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize
        if total and free < FULL_BYTES and free < (1 - FULL_SHARE) * total:
            yield finding(
                "error", DISK, f"{place} is full: {free / 2**30:.1f} GiB of {total / 2**30:.1f} GiB are free",
                f"'du -xh --max-depth=2 {place} | sort -h | tail' on the node says what fills it; make room",
            )  # fmt: skip
        if about.f_files and about.f_favail < LEAST_INODES_SHARE * about.f_files:
            yield finding(
                "error", DISK, f"{place} has no room for more files ({about.f_favail} of {about.f_files} are free)",
                f"'du -x --inodes --max-depth=2 {place} | sort -n | tail' on the node says what has so many",
            )  # fmt: skip
        if about.f_flag & os.ST_RDONLY or "ro" in mounts.get(place, ("", frozenset()))[1]:
            yield finding(
                "error", DISK, f"{place} can only be read",
                "the kernel does this after a disk's error: see 'dmesg | grep -iE \"ext4|xfs|nvme|I/O error\"', then "
                "check the disk and restart the node",
            )  # fmt: skip
