"""A floor comes from a source that speaks of this hardware and this size, or there is none."""

import csv
from pathlib import Path

import pytest

from components.validation import results
from components.validation.model import parse_size
from components.validation.results import Floor, floor_for
from components.validation.transport import read_transport

TABLE = Path(results.__file__).with_name("floors.csv")
MIB, GIB = 2**20, 2**30


def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(TABLE.read_text().splitlines()))


def h200(size_bytes: int = 8 * GIB, **other: object) -> Floor | None:
    asked = {"gpu": "h200", "gpus_per_node": 4, "nodes": 1, "transport": "NVLink", "collective": "all_reduce"}
    return floor_for(**{**asked, **other}, size_bytes=size_bytes)  # type: ignore[arg-type]


def test_a_floor_is_a_stated_fraction_of_a_measurement_and_names_its_source():
    floor = h200()
    assert floor is not None
    assert floor.gb_per_s == pytest.approx(0.9 * 365.08)
    assert "4 x H200 of one host" in floor.source


@pytest.mark.parametrize(("count", "gb_per_s"), [(2, 341), (4, 365.7)])
def test_nvlinks_distinguish_boards_of_one_kind(count, gb_per_s):
    floor = h200(8 * GIB, gpu="h100", gpus_per_node=count, nvlinks=18)
    assert floor is not None
    assert floor.gb_per_s == pytest.approx(0.9 * gb_per_s)
    assert h200(8 * GIB, gpu="h100", gpus_per_node=count, nvlinks=12) is None
    assert h200(8 * GIB, gpu="h100", gpus_per_node=count) is None


@pytest.mark.parametrize(
    "other",
    [
        *({"transport": transport} for transport in ("InfiniBand", "sockets", "NVLink, SHM")),
        *({"size_bytes": size} for size in (4 * MIB, 16 * GIB)),
        *({"gpu": "h100"}, {"gpus_per_node": 3}, {"nodes": 2}, {"collective": "all_gather"}),
    ],
)
def test_nothing_is_concluded_for_other_hardware_or_beyond_the_sizes_of_a_source(other):
    assert h200(**other) is None


def test_between_two_sizes_the_floor_lies_on_a_straight_line_over_their_logarithms():
    middle, low, high = h200(4 * GIB), h200(2 * GIB), h200(8 * GIB)
    assert middle
    assert low
    assert high
    assert middle.gb_per_s == pytest.approx((low.gb_per_s + high.gb_per_s) / 2)


@pytest.mark.parametrize("plugin", ["Libfabric", "AWS Libfabric", "OFI"])
def test_efa_has_a_verdict_for_any_name_of_its_plugin(plugin: str) -> None:
    line = f"p5:1:1 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/{plugin}/0/GDRDMA\n"
    used = read_transport(line, nodes=2).name
    assert used is not None
    floor = h200(8 * GIB, gpu="h100", gpus_per_node=8, nodes=2, transport=used)
    assert floor is not None
    assert floor.gb_per_s == pytest.approx(431, abs=1)


def test_a_lookup_finds_every_row_of_the_table_and_its_source():
    assert len({(tuple(row.values())[:6], row["source"]) for row in rows()}) == len(rows())
    for row in rows():
        fraction = float(row["fraction"])
        assert 0 < fraction <= 1
        assert ("published" in row["source"]) == (fraction == 1)
        assert fraction == 1 or f"{fraction:g} of it" in row["source"]
        counts = {name: int(row[name]) for name in ("gpus_per_node", "nodes")}
        names = {name: row[name] for name in ("gpu", "transport", "collective")}
        floor = h200(parse_size(row["size"]), **counts, **names)
        assert floor is not None
        assert floor.gb_per_s <= float(row["gb_per_s"]) * fraction
