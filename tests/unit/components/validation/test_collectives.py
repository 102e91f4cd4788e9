"""Bus bandwidth of each collective, by nccl-tests' own formulas."""

from __future__ import annotations

import pytest

from components.validation.collectives import COLLECTIVES
from components.validation.nccl_tests import parse
from tests.unit.simulated_slurm import table

MIB = 2**20


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 14 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("alltoall", 7 / 8), ("sendrecv", 1)],
)
def test_the_bus_bandwidth_is_the_algorithms_times_the_collectives_factor(collective: str, factor: float) -> None:
    read = parse(table(["a"], 8, [8 * MIB, 32 * MIB], 300.0, collective), collective=collective)
    assert read.problems == ()
    for row in read.rows:
        assert row.out_of_place.algbw_gb_per_s == pytest.approx(row.size_bytes / row.out_of_place.time_us / 1e3)
        assert row.out_of_place.busbw_gb_per_s == pytest.approx(row.out_of_place.algbw_gb_per_s * factor)


def test_a_message_that_ranks_share_is_as_long_as_their_equal_parts() -> None:
    # 8 MiB among 3 ranks: each part is a multiple of 16 bytes.
    assert COLLECTIVES["all_gather"].size(8 * MIB, 3) == 8388576
    assert COLLECTIVES["all_reduce"].size(8 * MIB, 3) == 8 * MIB
    assert [
        row.size_bytes for row in parse(table(["a"], 3, [8 * MIB], 9.0, "all_gather"), collective="all_gather").rows
    ] == [8388576]


@pytest.mark.parametrize(("printed", "asked"), [("all_gather", "all_reduce"), ("alltoall", "all_gather")])
def test_the_table_of_another_collective_gives_no_number(printed: str, asked: str) -> None:
    read = parse(table(["a"], 8, [8 * MIB], 300.0, printed), collective=asked)
    assert f"{printed}_perf ran instead of {asked}_perf" in read.problems
