"""Read GPU events from the kernel's ring buffer; the journal of a long boot takes seconds."""

from __future__ import annotations

import os
from pathlib import Path

KMSG = Path("dev/kmsg")
MOST_BYTES = 16 * 2**20
WANTED = ("NVRM: ", "SXid (")


def read_kmsg(root: Path = Path("/")) -> list[tuple[int, str]]:
    """Return (number, text) of records that may be GPU events; empty if the device cannot be read.

    Each read of the device returns one record, `priority,number,microseconds,flags;text`.
    """
    try:
        device = os.open(root / KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    data, length = bytearray(), 0
    try:
        while length < MOST_BYTES:
            try:
                record = os.read(device, 8192)
            except BrokenPipeError:  # the record was overwritten during the read
                continue
            except OSError:  # no more records
                break
            if not record:
                break
            length += len(record)
            data += record
    finally:
        os.close(device)
    return _records(data.decode("utf-8", "replace"))


def _records(text: str) -> list[tuple[int, str]]:
    records = []
    for line in text.split("\n"):
        head, mark, message = line.partition(";")
        fields = head.split(",")
        if (
            mark
            and len(fields) >= 4
            and fields[1].isascii()
            and fields[1].isdecimal()
            and any(word in message for word in WANTED)
        ):
            records.append((int(fields[1]), message))
    return records


def joined(earlier: list[tuple[int, str]], now: list[tuple[int, str]], most: int = 500) -> list[tuple[int, str]]:
    """Return the earlier records of this boot and the new ones: the buffer drops its oldest records."""
    last = max((number for number, _ in earlier), default=-1)
    return [*earlier, *(record for record in now if record[0] > last)][:most]
