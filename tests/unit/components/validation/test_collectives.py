"""Bus bandwidth of each collective and message sizes, as nccl-tests computes and lists them."""

from typing import Any

import pytest

from components.validation.model import parse_size, sizes_between
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


def test_a_size_is_read_in_powers_of_1024_and_refused_where_nccl_tests_would_misread_it():
    sizes: dict[Any, int] = {
        "512": 512,
        "8": 8,
        "64K": 65536,
        "64k": 65536,
        "4M": 4194304,
        "1G": 1073741824,
        4096: 4096,
    }
    assert {text: parse_size(text) for text in sizes} == sizes
    refused: tuple[Any, ...] = ("1X", "", "K", "-1", "0", "0G", "1.5M", "4 M", "64KiB", "1T", "٣", True)
    for text in refused:
        with pytest.raises(ValueError, match=r"is not a message size.*64K, 4M, 1G"):
            parse_size(text)
    for arguments, message in (((8, 64, 1), "factor"), ((0, 64, 2), "smallest"), ((128, 64, 2), "largest")):
        with pytest.raises(ValueError, match=message):
            sizes_between(*arguments)
