"""Measure one target on this node, as a task of the measuring job: `storage-node TARGET PART`.

TARGET is a target of the plan (components/measurement_jobs/job_plans.py), as JSON. PART:

  all     write, read and small files, on a target that only this node sees
  write   write and small files; leave the written file for the next node
  read    read the file that another node wrote, so that this node's page cache cannot have it; EXISTING reads a file
          that was there before, on a mount that the user cannot write to
  save    all ranks of all nodes write their parts of a checkpoint at the same time
  restore read the parts of another node's ranks
  clean   remove everything that a measurement left in the target

A file that was written is removed when it is read, when a part fails, and when the job is cancelled.
"""

import contextlib
import errno
import getpass
import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.validation import fio
from components.validation.model import format_size
from components.validation.storage_figures import FILES, LATE, LATENCY, READ, RUNS, WRITE, line_of
from components.validation.this_node import node_name, output_of, remove
from components.validation.untrusted import read

ALL, WRITE_PART, READ_PART, CLEAN = "all", "write", "read", "clean"
SAVE, RESTORE = "save", "restore"
# Limit of one of these parts, for all ranks together.
CHECKPOINT_SECONDS = 600
EXISTING = "/"  # in place of the node that wrote the file to read
# Where a target's folder for measuring is: in the job's folder on the share, in the job's scratch folder, or at the
# top of a mounted file system.
IN_JOB, IN_SCRATCH, IN_MOUNT = "job", "scratch", "mount"
# Shares of a target's time for one part of all runs.
_LARGE, _SMALL = 0.3, 0.2
_MOST_FILES = 20_000
_FILE_BYTES = 4096
# The search for a file on a mount that cannot be written: a large enough file, and limits of the search.
_LARGE_FILE, _MOST_ENTRIES, _SEARCH_SECONDS = 2**26, 5000, 10
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Free space that stays: the larger of these bytes and this part of the file system.
_KEPT_BYTES, _KEPT_PART = 2**30, 0.05


class Problem(Exception):
    """The target cannot be measured; the text says why and what to do."""


@dataclass(frozen=True)
class Target:
    """A target on this node.

    name      its name in outputs
    path      its path on nodes, for people; the mount point for IN_MOUNT, the parent of jobs' folders for IN_SCRATCH
    place     IN_JOB, IN_SCRATCH or IN_MOUNT
    shared    whether other nodes see the same files
    size      bytes of the large file
    seconds   time for all parts
    checkpoint   bytes of each rank's part of a checkpoint; 0 for none
    ranks     by node, the ranks that write and read it
    """

    name: str
    path: str
    place: str
    shared: bool
    size: int
    seconds: float
    checkpoint: int = 0
    ranks: Mapping[str, int] = field(default_factory=dict)

    def folder(self) -> Path:
        """Return the folder for measuring, which need not exist. Raises Problem if its parent is not the target."""
        if self.place == IN_JOB:
            return Path.cwd() / "data"
        if self.place == IN_SCRATCH:
            scratch = os.environ.get("TMPDIR", "")
            if not Path(scratch).is_relative_to(self.path):
                raise Problem(
                    f"TMPDIR is {scratch or 'not set'} and not in {self.path}: see 'journalctl -u slurmd' there"
                )
            return Path(scratch) / "tailrack-storage"
        if not os.path.ismount(self.path):
            raise Problem(f"{self.path} is not mounted there")
        return Path(self.path) / f".tailrack-storage-{getpass.getuser()}"


def measure(target: Target, part: str, node: str, source: str) -> str:
    """Run a part and return the line with its figures, or with the problem.

    source   the node that wrote the file to read
    """
    try:
        return line_of(node, target.name, **_PARTS[part](target, target.folder(), node, source))
    except (Problem, fio.FioError) as problem:
        return line_of(node, target.name, problem=str(problem))
    except OSError as error:
        return line_of(node, target.name, problem=_sentence(error, target))


def _all(target: Target, folder: Path, node: str, _: str) -> dict[str, Any]:
    try:
        written = _write(target, folder, node, "")
        read = _read(target, folder, node, node)
    finally:
        remove(folder)
    return {**written, **read, "runs": {**written["runs"], **read["runs"]}}


def _write(target: Target, folder: Path, node: str, _: str) -> dict[str, Any]:
    try:
        _own_folder(folder, target)
    except OSError as error:
        if target.place != IN_MOUNT or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return {"read_only": True, "file_system": file_system(folder.parent)}
    large, files = folder / node, folder / f"{node}.files"
    remove(large)
    _require_space(target, folder, target.size, "size")
    # Before any node writes its part.
    ranks = sum(target.ranks.values()) if target.shared else target.ranks.get(node, 0)
    _require_space(target, folder, target.checkpoint * ranks, "checkpoint_size")
    try:
        written = [_write_once(target, large) for _run in range(RUNS)]
        files_per_s = [_small_files(files, target.seconds * _SMALL / RUNS) for _run in range(RUNS)]
    except BaseException:
        remove(large)
        raise
    finally:
        remove(files)
    runs = {WRITE: [run.mb_per_s for run in written], FILES: files_per_s}
    return {"runs": runs, "direct": all(run.direct for run in written), "file_system": file_system(folder)}


def _write_once(target: Target, large: Path) -> fio.Reading:
    remove(large)  # overwriting a file is another figure than writing a new one
    return fio.run_fio(fio.WRITE, large, target.size, target.seconds * _LARGE / RUNS)


def _read(target: Target, folder: Path, node: str, source: str) -> dict[str, Any]:
    if source == EXISTING:
        return _read_file(target, _existing_file(Path(target.path)))
    try:
        written_by = "" if source == node else source
        return {**_read_file(target, folder / source), "written_by": written_by}
    finally:
        remove(folder / source)


def _read_file(target: Target, file: Path) -> dict[str, Any]:
    # A slow target may have taken less than the whole file in its time. fio would write the rest before it reads.
    size = min(target.size, file.stat().st_size) // fio.BLOCK * fio.BLOCK
    if not size:
        raise Problem(f"writing {format_size(fio.BLOCK)} took too long: write more in validation.storage.seconds")
    large, small = (target.seconds * share / RUNS for share in (_LARGE, _SMALL))
    reads = [fio.run_fio(fio.READ, file, size, large) for _run in range(RUNS)]
    late = [fio.run_fio(fio.LATENCY, file, size, small) for _run in range(RUNS)]
    runs = {
        READ: [run.mb_per_s for run in reads],
        LATENCY: [run.median_us for run in late if run.median_us is not None],
        LATE: [run.p99_us for run in late if run.p99_us is not None],
    }
    return {"runs": runs, "direct": all(run.direct for run in (*reads, *late))}


def _existing_file(top: Path) -> Path:
    """Return a file that this user can read: the first large one, or the largest among the first entries."""
    best, most, entries, deadline = None, fio.BLOCK - 1, 0, time.monotonic() + _SEARCH_SECONDS
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder) / name
            with contextlib.suppress(OSError):
                status = path.lstat()
                # fio splits names at some characters.
                readable = stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK) and _PLAIN.fullmatch(name)
                if readable and status.st_size > most:
                    best, most = path, status.st_size
        entries += len(names) + 1
        if most >= _LARGE_FILE or entries > _MOST_ENTRIES or time.monotonic() > deadline:
            break
    if best is None:
        raise Problem(
            f"{getpass.getuser()}, who measures, cannot write to {top}, and no readable file of "
            f"{format_size(fio.BLOCK)} or more was found in it"
        )
    return best


def _save(target: Target, folder: Path, node: str, _: str) -> dict[str, Any]:
    _own_folder(folder, target)
    return {"checkpoint": _ranks(target, fio.WRITE, folder, node, "save")}


def _restore(target: Target, folder: Path, node: str, _: str) -> dict[str, Any]:
    nodes = [*target.ranks]
    # Read those of the node before, which this node's page cache cannot have.
    source = nodes[nodes.index(node) - 1] if target.shared else node
    return {"checkpoint": _ranks(target, fio.READ, folder, source, "restore")}


def _ranks(target: Target, kind: str, folder: Path, source: str, name: str) -> dict[str, float]:
    ranks, saved = target.ranks[source], False
    try:
        seconds = fio.run_ranks(kind, folder, f"{source}.part", target.checkpoint, ranks, CHECKPOINT_SECONDS)
        saved = kind == fio.WRITE
    finally:
        for part in () if saved else folder.glob(f"{source}.part.*"):
            remove(part)
    return {f"{name}_ranks": ranks, f"{name}_bytes": target.checkpoint * ranks, f"{name}_seconds": seconds}


def _clean(_target: Target, folder: Path, _node: str, _source: str) -> dict[str, Any]:
    remove(folder)
    return {}


_PARTS: Mapping[str, Callable[[Target, Path, str, str], dict[str, Any]]] = {
    ALL: _all,
    WRITE_PART: _write,
    READ_PART: _read,
    SAVE: _save,
    RESTORE: _restore,
    CLEAN: _clean,
}


def _own_folder(folder: Path, target: Target) -> None:
    """Make the folder for measuring; refuse a link or another account's folder of that name."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise Problem(f"{folder} on {target.path} belongs to another account, or is no folder: remove it")


def _require_space(target: Target, folder: Path, size: int, key: str) -> None:
    status = os.statvfs(folder)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    needed = size + max(_KEPT_BYTES, int(total * _KEPT_PART))
    if not total:
        raise Problem(f"{target.path} does not report its free space, so writing could fill it")
    if free < needed:
        raise Problem(
            f"{target.path} has {free / 2**30:.1f} GiB free, and {needed / 2**30:.1f} GiB are needed: "
            f"free some, or write a smaller validation.storage.{key}"
        )


def _small_files(folder: Path, seconds: float) -> float:
    """Return files per second: create a file, write 4 KiB, close it, read its attributes, and delete it."""
    remove(folder)
    folder.mkdir(mode=0o700)
    data, count = os.urandom(_FILE_BYTES), 0
    begin = now = time.monotonic()
    while count < _MOST_FILES and (not count or now - begin < seconds):
        path = folder / str(count)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)
        path.stat()
        path.unlink()
        count, now = count + 1, time.monotonic()
    return count / max(now - begin, 1e-6)


def file_system(folder: Path) -> str:
    """Return the type of the file system that contains a folder, such as nfs4; empty if it is unknown."""
    return (output_of("df", "--output=fstype", "--", str(folder)) or "").rpartition("Type")[2].strip()


def _sentence(error: OSError, target: Target) -> str:
    user = getpass.getuser()
    remedies = {
        errno.ENOENT: f"{target.path} or the file to read in it is gone",
        **dict.fromkeys((errno.EACCES, errno.EPERM), f"{user}, who measures, cannot write to {target.path}: allow it"),
        errno.EAGAIN: "the kernel has no room for asynchronous I/O: raise fs.aio-max-nr there",
        errno.EROFS: f"{target.path} is read-only, and only storage that can be written is measured",
        errno.EDQUOT: f"the quota of {user} on {target.path} is full: raise it, or write a smaller size",
        errno.ENOSPC: f"{target.path} is full: free some space, or write a smaller validation.storage.size",
    }
    return remedies.get(error.errno or 0, f"{target.path}: {error.strerror}")


def main(arguments: Sequence[str]) -> int:
    """Run a part, print its line, and return the exit status."""
    data, part, *source = arguments
    target, node = read(Target, json.loads(data)), node_name()
    # Slurm cancels a job with SIGTERM, and kills it half a minute later. The folder goes as a whole: no other node
    # measures a shared target at the same time.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.stdout.write(measure(target, part, node, source[0] if source else node) + "\n")
        sys.stdout.flush()
    except SystemExit:
        with contextlib.suppress(Problem):
            remove(target.folder())
        raise
    return 0
