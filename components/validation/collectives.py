"""The collectives that can be measured, their formulas for bus bandwidth, and message sizes as nccl-tests writes them.

Source: nccl-tests' doc/PERFORMANCE.md and `…GetBw` and `…GetCollByteCount` in src/<collective>.cu (v2.19.6). In the
table, `size` is the larger of the bytes sent and received, and `count` is a rank's own part of it.
Sizes are `512`, `64K`, `4M`, `1G`, powers of 1024. Source: `parsesize` in src/common.cu. It also accepts fractions,
which are refused here: a size must be a whole number of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ALIGNMENT = 16  # nccl-tests rounds a rank's part down to a multiple of this, in bytes
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>[KMG]?)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Collective:
    """The properties of one collective in nccl-tests.

    shared        whether a message is divided among the ranks
    passes        how often the ring carries it: 2 for all_reduce
    checks_all    whether in-place results are compared too
    """

    name: str
    shared: bool
    passes: int
    checks_all: bool = True

    @property
    def program(self) -> str:
        return f"{self.name}_perf"

    def factor(self, ranks: int) -> float:
        return self.passes * (ranks - 1) / ranks if self.passes else 1.0

    def elements(self, count: int, ranks: int) -> int:
        return count * ranks if self.shared else count

    def size(self, requested: int, ranks: int) -> int:
        """Return the size in bytes of the row for a requested size."""
        return requested // ranks // _ALIGNMENT * _ALIGNMENT * ranks if self.shared else requested


COLLECTIVES: Mapping[str, Collective] = {
    each.name: each
    for each in (
        Collective("all_reduce", shared=False, passes=2),
        Collective("all_gather", shared=True, passes=1),
        Collective("reduce_scatter", shared=True, passes=1),
        Collective("alltoall", shared=True, passes=1, checks_all=False),
        Collective("sendrecv", shared=False, passes=0, checks_all=False),
    )
}


def parse_size(text: str | int) -> int:
    """Return the bytes of `64K`, `4M`, `1G` or a plain number. Raises ValueError with the accepted forms."""
    match = _SIZE.fullmatch(str(text).strip())
    size = int(match["number"]) * _UNITS[match["unit"].upper()] if match else 0
    if size <= 0 or isinstance(text, bool):
        raise ValueError(
            f"{text!r} is not a message size: write a positive number of bytes,"
            " with K, M or G for powers of 1024 (64K, 4M, 1G)"
        )
    return size


def sizes_between(minimum: int, maximum: int, factor: int) -> tuple[int, ...]:
    """Return the sizes in bytes that nccl-tests measures for `-b minimum -e maximum -f factor`, smallest first."""
    if factor < 2:
        raise ValueError(f"the factor is {factor}: it must be 2 or more, else the size does not grow")
    if minimum < 1:
        raise ValueError(f"the smallest size is {minimum} bytes: it must be at least 1")
    if maximum < minimum:
        raise ValueError(f"the largest size, {maximum} bytes, is below the smallest, {minimum} bytes")
    sizes = [minimum]
    while sizes[-1] * factor <= maximum:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def format_size(size_bytes: int) -> str:
    """Return `65536` as `64 KiB`; a size that is not a multiple of 1024 stays in bytes."""
    for unit, scale in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= scale and size_bytes % scale == 0:
            return f"{size_bytes // scale} {unit}"
    return f"{size_bytes} B"
