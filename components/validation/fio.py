"""Run fio on one file, and read its JSON."""

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.node.json_part import first_object, objects_in
from components.validation.this_node import MISSING, TOO_LONG, attempt

BLOCK = 2**20  # bytes of one transfer of a large file
# Transfers in flight. More of them only queue, and a slow share needs long to finish those that have begun.
_DEPTH = 8
# Blocks between two fsync calls of a program that writes through the page cache: bounds the data that a slow disk owes
# after the time limit.
_FSYNC_BLOCKS = 32
_SLACK_SECONDS = 60  # for a storage that hangs, above the time that fio has

WRITE, READ, LATENCY = "write", "read", "latency"


class FioError(Exception):
    """fio did not measure; the text is its error."""


@dataclass(frozen=True)
class Reading:
    """Figures of one run of fio.

    io_bytes   bytes that it moved
    mb_per_s   10^6 bytes per second
    median_us, p99_us   time of one transfer; None if fio counted none
    direct     whether it used direct I/O
    """

    io_bytes: int
    mb_per_s: float
    median_us: float | None
    p99_us: float | None
    direct: bool = True


def fio_command(kind: str, name: str, size: int, seconds: float, direct: bool) -> list[str]:
    """Return the command for a file in the working folder: fio would split a whole path at its colons.

    kind     WRITE (a new file), READ (all of it, in order) or LATENCY (random reads of 4 KiB, one at a time)
    direct   whether to use direct I/O; else fio drops the file from this node's page cache before it reads
    """
    command = [
        *("fio", "--output-format=json", f"--name={kind}", f"--filename={name}", f"--size={size}"),
        *(f"--runtime={max(1, round(seconds * 1000))}ms", f"--direct={int(direct)}", "--invalidate=1"),
    ]
    if kind == LATENCY:
        # Other blocks in each run, because the first run leaves its blocks in the server's memory.
        return [*command, "--readonly", "--rw=randread", "--bs=4k", "--ioengine=psync", "--randrepeat=0"]
    command += [f"--bs={BLOCK}", "--ioengine=libaio", f"--iodepth={_DEPTH}"]
    if kind == READ:
        return [*command, "--readonly", "--rw=read"]
    # Without fallocate, a file ends where its data ends. The fsync at the end counts.
    command += ["--rw=write", "--fallocate=none", "--end_fsync=1"]
    return command if direct else [*command, f"--fsync={_FSYNC_BLOCKS}"]


def run_fio(kind: str, file: Path, size: int, seconds: float) -> Reading:
    """Run fio on a file, with direct I/O if its file system takes that. Raises FioError or OSError."""
    limit = seconds + _SLACK_SECONDS
    try:
        return _run(kind, fio_command(kind, file.name, size, seconds, True), file.parent, limit)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    reading = _run(kind, fio_command(kind, file.name, size, seconds, False), file.parent, limit)
    return replace(reading, direct=False)


def run_ranks(kind: str, folder: Path, name: str, size: int, ranks: int, limit: float) -> float:
    """Return the seconds in which all ranks of a node write or read their files `NAME.RANK`, the fsync included.

    It uses the page cache, as programs that save checkpoints do. Raises FioError or OSError.
    """
    command = [
        *("fio", "--output-format=json", f"--name={kind}", f"--filename_format={name}.$jobnum", f"--size={size}"),
        *(f"--numjobs={ranks}", "--group_reporting", "--invalidate=1", f"--bs={BLOCK}", "--ioengine=psync"),
        *(("--rw=write", "--fallocate=none", "--end_fsync=1") if kind == WRITE else ("--readonly", "--rw=read")),
    ]
    reading = _run(kind, command, folder, limit)
    if reading.io_bytes != size * ranks:
        raise FioError(f"fio moved {reading.io_bytes} bytes instead of {size * ranks}")
    return reading.io_bytes / reading.mb_per_s / 1e6


def _run(kind: str, command: list[str], folder: Path, limit: float) -> Reading:
    ended = attempt(*command, seconds=limit, folder=folder)
    if ended.status == MISSING:
        raise FioError("fio is not installed: run 'apt-get install fio' there")
    if ended.status == TOO_LONG:
        raise FioError(f"fio did not end within {limit:.0f} s")
    return read_fio(ended.output, kind, ended.errors)


def read_fio(output: str, kind: str, errors: str = "") -> Reading:
    """Return the figures in fio's output. Raises FioError, or OSError for an error of the file system."""
    report, complete = first_object(output, lambda value: "jobs" in value)
    jobs = objects_in(report, "jobs")
    if len(jobs) == 1 and isinstance(number := jobs[0].get("error"), int) and number > 0:
        raise OSError(number, os.strerror(number))
    if not complete or len(jobs) != 1:
        messages = [line.strip() for line in (errors + output).splitlines() if line.startswith("fio:")]
        raise FioError(messages[0][:300] if messages else "fio printed no figures")
    section = jobs[0].get("write" if kind == WRITE else "read")
    try:
        return _reading(section if isinstance(section, Mapping) else {})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise FioError(f"fio's output lacks a figure: {json.dumps(str(error))[:100]}") from None


def _reading(section: Mapping[str, Any]) -> Reading:
    moved, milliseconds = int(section["io_bytes"]), int(section["runtime"])
    if moved <= 0:
        raise FioError("fio moved no data in its time: write more seconds in validation.storage.seconds")
    percentiles = section["clat_ns"].get("percentile") or {}
    median, late = (percentiles.get(f"{rank}.000000") for rank in (50, 99))
    # A short run has a time of few milliseconds: fio's own rate has the same resolution.
    return Reading(
        moved,
        moved / max(milliseconds, 1) / 1000,
        None if median is None else median / 1000,
        None if late is None else late / 1000,
    )
