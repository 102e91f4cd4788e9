"""The collectives that can be measured, and what turns bytes and time into their bus bandwidth.

Source: nccl-tests' doc/PERFORMANCE.md and `…GetBw` and `…GetCollByteCount` in src/<collective>.cu (v2.19.6). In the
table, `size` is the larger of what is sent and what is received, and `count` is a rank's own part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_ALIGNMENT = 16  # bytes of a rank's part that nccl-tests rounds down to


@dataclass(frozen=True)
class Collective:
    """What nccl-tests does for one collective.

    shared        whether a message is divided among the ranks
    passes        how often the ring carries it: 2 for all_reduce
    checks_all    whether results in place are compared too
    """

    name: str
    shared: bool
    passes: int
    checks_all: bool = True

    @property
    def program(self) -> str:
        """The name of its program in nccl-tests."""
        return f"{self.name}_perf"

    def factor(self, ranks: int) -> float:
        """Bus bandwidth / algorithm bandwidth."""
        return self.passes * (ranks - 1) / ranks if self.passes else 1.0

    def elements(self, count: int, ranks: int) -> int:
        """Elements of a message whose row says `count`."""
        return count * ranks if self.shared else count

    def size(self, asked: int, ranks: int) -> int:
        """The size in bytes of the row that was asked for as `asked`."""
        return asked // ranks // _ALIGNMENT * _ALIGNMENT * ranks if self.shared else asked


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
