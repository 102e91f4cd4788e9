"""The collectives that can be measured, and their formulas for bus bandwidth.

Source: nccl-tests' doc/PERFORMANCE.md and `…GetBw` and `…GetCollByteCount` in src/<collective>.cu (v2.19.6). In the
table, `size` is the larger of the bytes sent and received, and `count` is a rank's own part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_ALIGNMENT = 16  # nccl-tests rounds a rank's part down to a multiple of this, in bytes


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
