"""The kernel's ring buffer, read for events of GPUs: at once, where the journal of a long boot takes seconds."""

from __future__ import annotations

import os
from pathlib import Path

KMSG = Path("dev/kmsg")
MOST_BYTES = 16 * 2**20
WANTED = ("NVRM: ", "SXid (")


def read_kmsg(root: Path = Path("/")) -> list[tuple[int, str]]:
    """Return (number, text) of the records that GPUs' events may be among, as far back as the buffer goes.

    One read of the device gives one record, `priority,number,microseconds,flags;text`. Empty where nobody may read it.
    """
    try:
        device = os.open(root / KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    found, length = bytearray(), 0
    try:
        while length < MOST_BYTES:
            try:
                record = os.read(device, 8192)
            except BrokenPipeError:  # overwritten while it was read
                continue
            except OSError:  # no more of them
                break
            if not record:
                break
            length += len(record)
            found += record
    finally:
        os.close(device)
    return _records(found.decode("utf-8", "replace"))


def _records(text: str) -> list[tuple[int, str]]:
    records = []
    for line in text.split("\n"):
        head, mark, words = line.partition(";")
        fields = head.split(",")
        if (
            mark
            and len(fields) >= 4
            and fields[1].isascii()
            and fields[1].isdecimal()
            and any(word in words for word in WANTED)
        ):
            records.append((int(fields[1]), words))
    return records


def joined(before: list[tuple[int, str]], now: list[tuple[int, str]], most: int = 500) -> list[tuple[int, str]]:
    """What was kept of this boot and what is new: the buffer forgets its oldest records."""
    last = max((number for number, _ in before), default=-1)
    return [*before, *(record for record in now if record[0] > last)][:most]
