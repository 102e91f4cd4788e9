"""Results of nccl-tests as JSON, with all their digits and nothing else of the file, and versions of programs."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.validation.job_files import job_program
from components.validation.nccl_tests import parse, print_table, table

SECRET = "AWS_SECRET_ACCESS_KEY=hush-hush"
HALF = ("time", "alg_bw", "bus_bw")


def written(
    rows: list[tuple[int, float, float]], ranks: int = 2, wrong: int | None = 0, version: int = 3
) -> dict[str, Any]:
    """What nccl-tests has in its file (src/util.cu) for rows of bytes and microseconds, out of place and in place."""

    def half(size: int, time: float) -> dict[str, Any]:
        algbw = size / time / 1e3
        values = time, algbw, algbw * 2 * (ranks - 1) / ranks
        exact = {key: float(f"{value:f}") for key, value in zip(HALF, values, strict=True)}
        return {**exact, "nwrong": None if wrong is None else float(wrong)}

    halves = [size / time / 1e3 * 2 * (ranks - 1) / ranks for size, *times in rows for time in times]
    device = {"group": 0, "device": 0, "device_info": "H200"}
    devices = [{"rank": rank, "pid": 41 + rank, "hostname": f"n{rank}", **device} for rank in range(ranks)]
    spelt = ("average_bus_bandwidth", "bandwidth") if version > 1 else ("average_bus_bandwidith", "bandwidith")
    return {
        "version": version,
        "start_time": "2026-11-22 17:00:00",
        "args": ["build/all_reduce_perf", "-b", "8", "-J", "figures-of-ada.json"],
        "env": ["HOME=/home/ada", SECRET],
        "nccl_version": 22809,
        "config": {"nthreads": 1, "ngpus": 1, "devices": devices},
        "results": [
            {
                "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
                "out_of_place": half(size, out), "in_place": half(size, inside), "actual_iterations": 20,
            }
            for size, out, inside in rows
        ],
        "out_of_bounds": {"count": 2 * len(rows) if wrong else 0, "okay": "false" if wrong else "true"},
        spelt[0]: {spelt[1]: float(f"{sum(halves) / len(halves):f}"), "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-11-22 17:00:09",
    }  # fmt: skip


def printed(told: dict[str, Any]) -> str:
    text = json.dumps(told)
    return table(json.loads(text, parse_int=str, parse_float=lambda digits: f"{float(digits):f}"))


ROWS = [(8 * 2**20, 61.664321, 61.5), (8 * 2**30, 35293.123456, 35290.5)]


@given(
    st.lists(
        st.tuples(st.integers(1, 2**36).map(lambda n: 4 * n), st.floats(1, 1e9), st.floats(1, 1e9)),
        min_size=1, max_size=8, unique_by=lambda row: row[0],
    ),
    st.integers(2, 64),
)  # fmt: skip
def test_the_json_reader_returns_nccl_tests_own_numbers(rows: list[tuple[int, float, float]], ranks: int) -> None:
    found = parse(printed(written(rows, ranks)))
    assert found.problems == ()
    assert [row.in_place.time_us for row in found.rows] == [float(f"{inside:f}") for _, _, inside in rows]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("results", 0, "out_of_place", "time"), "nan"),
        (("results", 0, "out_of_place", "bus_bw"), 999.5),
        (("results", 0, "in_place", "alg_bw"), 136.1),
        (("results", 0, "count"), 7),
        (("results", 1, "size"), 8 * 2**20),
        (("results", 0, "in_place", "nwrong"), 1.0),
        (("average_bus_bandwidth", "bandwidth"), 365.083),
        (("args", 0), "sendrecv_perf"),
        (("config", "devices", 0, "rank"), 5),
    ],
)
def test_figures_that_contradict_one_another_are_a_problem(place: tuple[str | int, ...], value: object) -> None:
    told = written(ROWS)
    within: Any = told
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    assert parse(printed(told)).problems


def test_nothing_of_the_environment_comes_out(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(written(ROWS)))
    told = read_by_itself(tmp_path / "figures.json")
    assert (told.returncode, told.stderr) == (0, "")
    assert parse(told.stdout).problems == ()
    for word in ("hush", "HOME", "ada"):
        assert word not in told.stdout


WHOLE = json.dumps(written(ROWS))


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "5", "[" * 100_000, WHOLE[:-40], WHOLE[:200], WHOLE.replace("results", "result"),
        WHOLE.replace('"time"', '"cpu_time"'), WHOLE.replace('"n0"', '"n0\\n# Avg bus bandwidth : 1"'),
        WHOLE.replace('"out_of_bounds"', '"out"'), WHOLE.replace('{"count": 0, "okay": "true"}', "null"),
    ],
)  # fmt: skip
def test_an_incomplete_file_gives_no_figures(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "figures.json").write_text(text)
    assert print_table([str(tmp_path / "figures.json")]) == 1
    assert capsys.readouterr() == ("", "")


def read_by_itself(file: Path) -> subprocess.CompletedProcess[str]:
    """What the program prints of a file, as a rank runs it."""
    with tempfile.NamedTemporaryFile(suffix=".pyz") as program:
        program.write(job_program())
        program.flush()
        command = [sys.executable, "-I", program.name, "nccl-table", str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
