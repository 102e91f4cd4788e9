"""The table of nccl-tests is read in every format it has had, and never read wrongly."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.validation.nccl_tests import parse
from tests.unit.components.validation.test_verdict import FIXTURES, output_of

MIB = 2**20


def width_fitted(value: float, width: int) -> str:
    """getFloatStr of nccl-tests' src/util.cu, v2.19."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def printed(rows: list[tuple[int, tuple[float, int], tuple[float, int]]], ranks: int) -> str:
    """What nccl-tests v2.19 prints for rows of (bytes, (microseconds, wrong) out of place, the same in place)."""
    lines = ["# Using devices"]
    lines += [f"#  Rank {r:2d} Group  0 Pid {r + 1:6d} on {'n':>9}{r} device  0 [0000:18:00] GPU" for r in range(ranks)]
    header = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}".format("size", "count", "type", "redop", "root")
    header += 2 * "  {:>7}  {:>6}  {:>6}  {:>6}".format("time", "algbw", "busbw", "#wrong") + " "
    lines += ["#", header]
    bandwidths = []
    for size, *halves in rows:
        line = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:6d}"
        for time, wrong in halves:
            algbw = size / 1e9 / (time / 1e6)
            bandwidths.append(algbw * (2 * (ranks - 1) / ranks))
            cells = width_fitted(time, 7), width_fitted(algbw, 6), width_fitted(bandwidths[-1], 6)
            line += "  {:>7}  {:>6}  {:>6}".format(*cells) + f"  {wrong:6g}"
        lines.append(line)
    bad = sum(wrong > 0 for _, *halves in rows for _, wrong in halves)
    lines.append(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    lines.append(f"# Avg bus bandwidth    : {sum(bandwidths) / len(bandwidths):g} ")
    return "\n".join([*lines, "#", "# Collective test concluded: all_reduce_perf", "#", ""])


# From 1 us to the longest that needs no exponent, and counts that %g prints in full.
halves = st.tuples(st.floats(1, 9_999_999), st.integers(0, 999_999))
rows = st.lists(
    st.tuples(st.integers(1, 2**32).map(lambda n: 4 * n), halves, halves), min_size=1, unique_by=lambda row: row[0]
)


@given(rows, st.integers(2, 64))
def test_the_table_reader_returns_the_numbers_that_nccl_tests_prints(rows, ranks):
    table = parse(printed(rows, ranks))
    assert table.problems == ()
    assert table.ranks == ranks
    for (size, *halves), row in zip(rows, table.rows, strict=True):
        assert row.size_bytes == size
        for (time, wrong), timing in zip(halves, (row.out_of_place, row.in_place), strict=True):
            assert timing.time_us == float(width_fitted(time, 7))
            assert timing.wrong == wrong
            assert timing.algbw_gb_per_s == pytest.approx(size / timing.time_us / 1e3)
            assert timing.busbw_gb_per_s == pytest.approx(timing.algbw_gb_per_s * 2 * (ranks - 1) / ranks)


@given(st.text(alphabet=st.sampled_from("# 0123456789.eN/A-+\n\ttimesizebusw:[]NCCL INFO"), max_size=400))
def test_no_text_makes_the_parser_raise(noise):
    header = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    for text in (noise, header + noise, output_of("nccl-tests-2.9-2x8") + noise):
        assert isinstance(parse(text).problems, tuple)


@given(st.integers(min_value=0), st.text(alphabet="0123456789.e+-N/A# \n", min_size=1, max_size=12))
def test_damage_in_the_middle_of_a_table_is_noticed_or_changes_no_number(place, noise):
    whole = output_of("nccl-tests-2.19-2x1-H200-socket-eth0")
    place %= len(whole)
    table = parse(whole[:place] + noise + whole[place + len(noise) :])
    clean = parse(whole)
    if not table.problems:
        for row, right in zip(table.rows, clean.rows, strict=True):
            assert row.out_of_place.busbw_gb_per_s == pytest.approx(right.out_of_place.busbw_gb_per_s, abs=0.011)


@pytest.mark.parametrize(("interface", "busbw", "average"), [("eth0", 1.860, 1.34535), ("tailscale0", 0.728, 0.590307)])
def test_a_real_table_with_nccls_log_lines_in_it_is_read_whole(interface, busbw, average):
    table = parse(output_of(f"nccl-tests-2.19-2x1-H200-socket-{interface}"))
    assert table.problems == ()
    assert (table.ranks, table.hosts, table.out_of_bounds) == (2, ("a", "b"), 0)
    assert [row.size_bytes for row in table.rows] == [MIB * 4**step for step in range(5)]
    assert round(table.rows[-1].out_of_place.busbw_gb_per_s, 3) == busbw
    assert table.average_busbw_gb_per_s == pytest.approx(average, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "ranks", "last_time_us"),
    [
        ("nccl-tests-2.9-2x8", 16, 26743),
        ("nccl-tests-2.10-2x8-unchecked", 16, 26743),
        ("nccl-tests-2.13-1x8", 8, 26743),
        ("nccl-tests-2.19-2x1-per-iteration-timestamps", 2, 26743.1),
        ("nccl-tests-2.19-2x1-torn-row", 2, 26743.1),
        ("nccl-tests-2.19-2x8-ib-gdrdma", 16, 26743.1),
        ("mpi-cpu-2x1-tcp-eth0", 2, 3833.04),
    ],
)
def test_every_format_of_the_table_is_read_whole(name, ranks, last_time_us):
    table = parse(output_of(name))
    assert table.problems == ()
    assert (table.ranks, len(table.rows)) == (ranks, 4)
    assert table.rows[-1].out_of_place.time_us == last_time_us


@pytest.mark.parametrize("name", ["nccl-tests-2.19-2x1-unchecked", "nccl-tests-2.10-2x8-unchecked"])
def test_data_that_was_not_checked_counts_as_unknown(name):
    halves = [half for row in parse(output_of(name)).rows for half in (row.out_of_place, row.in_place)]
    assert {(half.wrong, half.checked) for half in halves} == {(None, False)}


def test_rows_that_were_finished_before_a_kill_are_kept():
    table = parse(output_of("mpi-cpu-1x2-killed"))
    assert [row.size_bytes for row in table.rows] == [65536 * 4**step for step in range(5)]
    assert table.average_busbw_gb_per_s is None
    assert "stops before" in table.problems[0]


TABLE = "nccl-tests-2.19-2x1-wrong"


CHANGES = yaml.safe_load((FIXTURES / "contradictory-tables.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("old", "new", "problem"), CHANGES)
def test_a_contradictory_table_names_the_row(old, new, problem):
    assert old in output_of(TABLE)
    problems = parse(output_of(TABLE).replace(old, new, 1)).problems
    assert any(problem in text for text in problems), problems
