"""Only a whole, right and fast enough measurement passes; everything else says why."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from components.validation.model import JobReport, Measurement
from components.validation.results import not_measured_alone
from components.validation.verdict import judge
from tests.unit.simulated_slurm import SOCKETS, log, table

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_tests"
MIB = 2**20
REAL = (FIXTURES / "nccl-tests-2.19-2x1-H200-socket-eth0.txt").read_text()
MPI = (FIXTURES / "mpi-cpu-2x1-tcp-eth0.txt").read_text()


def sizes(smallest: int, largest: int) -> dict[str, Any]:
    return {"min_bytes": smallest, "max_bytes": largest, "gate_bytes": largest}


RUNS: dict[str, Any] = {"factor": 4, "iterations": 20, "warmup": 1, "ranks": 2, "nodes": 2}
ASKED = Measurement(backend="nccl-tests", **sizes(MIB, 256 * MIB), **RUNS, floor_gb_per_s=1.5)
MPI_ASKED = dataclasses.replace(ASKED, backend="mpi-cpu", **sizes(65536, 4 * MIB), floor_gb_per_s=0.1)
CONSTRUCTED = dataclasses.replace(ASKED, **sizes(8 * MIB, 512 * MIB))


def report(output: str = REAL, **changes: object) -> JobReport:
    data = {"job_id": 17, "state": "COMPLETED", "exit_code": 0, "seconds": 9.5, "nodes": ["a", "b"]}
    return JobReport.from_json({**data, "output": output, **changes})


FAILED = {"state": "FAILED", "exit_code": 7}


def output_of(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


def test_a_real_measurement_above_its_floor_passes_with_every_number():
    result = judge(ASKED, report())
    assert (result["verdict"], result["wrong"], result["ranks"]) == ("PASS", 0, 2)
    assert result["busbw_gb_per_s"] == pytest.approx(1.860, abs=5e-4)
    assert result["algbw_gb_per_s"] == pytest.approx(1.860, abs=5e-4)
    assert (result["gate_bytes"], result["floor_gb_per_s"]) == (256 * MIB, 1.5)
    assert (result["peak_busbw_gb_per_s"], result["peak_bytes"]) == (result["busbw_gb_per_s"], 256 * MIB)
    assert result["average_busbw_gb_per_s"] == pytest.approx(1.34535, abs=1e-5)
    assert (result["transport"], result["interface"]) == ("sockets", "eth0")
    assert (result["nodes"], result["job_id"], result["seconds"]) == (["a", "b"], 17, 9.5)
    assert (result["backend"], len(result["rows"])) == ("nccl-tests", 5)
    assert result["rows"][0]["out_of_place"]["time_us"] == 4524.53
    assert "1.860 GB/s of bus bandwidth at 256 MiB" in result["reason"]


def test_a_good_measurement_without_a_known_floor_is_unjudged():
    result = judge(dataclasses.replace(ASKED, floor_gb_per_s=None), report())
    assert (result["verdict"], result["floor_gb_per_s"]) == ("UNJUDGED", None)
    assert "no floor is known" in result["reason"]


def test_a_real_mpi_measurement_passes_and_is_labelled_as_cpu():
    result = judge(MPI_ASKED, report(MPI))
    assert (result["verdict"], result["backend"]) == ("PASS", "mpi-cpu")
    assert (result["transport"], result["interface"]) == ("TCP", "eth0")


WRONG_RESULT = dataclasses.replace(MPI_ASKED, max_bytes=262144, gate_bytes=262144, nodes=1)
UNCHECKED = report(output_of("nccl-tests-2.19-2x1-unchecked"))
OLD_VERSION = output_of("nccl-tests-2.9-2x8").replace("values : 0 OK", "values : 3 FAILED")


@pytest.mark.parametrize(
    ("asked", "told", "verdict", "wrong", "reason"),
    [
        (WRONG_RESULT, report(output_of("mpi-cpu-1x2-wrong-result"), **FAILED), "FAIL", 4, "wrong"),
        (dataclasses.replace(CONSTRUCTED, ranks=16), report(OLD_VERSION, **FAILED), "FAIL", 3, ""),
        (CONSTRUCTED, UNCHECKED, "INCONCLUSIVE", None, "the data was not checked completely"),
    ],
    ids=["one wrong element of a fast one", "deviations of an old version", "unchecked data"],
)
def test_wrong_or_unchecked_data_never_passes(asked, told, verdict, wrong, reason):
    result = judge(asked, told)
    assert (result["verdict"], result["wrong"]) == (verdict, wrong)
    assert reason in result["reason"]


def test_a_measurement_below_its_floor_fails_though_its_peak_and_average_would_do():
    asked = dataclasses.replace(ASKED, gate_bytes=MIB, floor_gb_per_s=0.5)
    result = judge(asked, report(node_states="", facts={"nvidia_peermem": "not loaded on a"}))
    assert result["verdict"] == "FAIL"
    assert result["average_busbw_gb_per_s"] == pytest.approx(1.345, abs=1e-3)
    assert "below the floor of 0.5" in result["reason"]
    assert "nvidia_peermem: not loaded on a" in result["reason"]


@pytest.mark.parametrize(
    ("state", "exit_code", "words"),
    [
        ("FAILED", 3, "state FAILED, exit code 3 (an NCCL error)"),
        ("FAILED", 7, "exit code 7 (wrong results or too slow)"),
        ("TIMEOUT", 0, "state TIMEOUT, exit code 0, signal 9"),
        ("NODE_FAIL", 0, "state NODE_FAIL"),
        ("CANCELLED", None, "state CANCELLED"),
        ("OUT_OF_MEMORY", 0, "state OUT_OF_MEMORY"),
        ("COMPLETED", 1, "exit code 1"),
        ("COMPLETED", 0, "signal 9"),
    ],
)
def test_a_failed_job_fails_with_its_state_and_the_facts_of_its_nodes(state, exit_code, words):
    output = "srun: error: a: task 0: Aborted\nlast words\n"
    of_nodes = {"node_states": "Not responding  slurm  b", "facts": {"link of b": "down"}}
    result = judge(ASKED, report(output, state=state, exit_code=exit_code, signal=9 * (exit_code == 0), **of_nodes))
    assert result["verdict"] == "FAIL"
    for part in (words, "Not responding  slurm  b", "link of b: down", "srun: error: a: task 0: Aborted | last words"):
        assert part in result["reason"]
    measured = ("busbw_gb_per_s", "algbw_gb_per_s", "peak_busbw_gb_per_s", "peak_bytes", "average_busbw_gb_per_s")
    unknown = {name for name, value in result.items() if value is None}
    besides = ("spread", "floor_source", "expected_transport", "expected_interface")
    assert unknown == {*measured, *besides, "wrong", "ranks", "transport", "interface", "measured_at", "last"}
    assert result["rows"] == []


@pytest.mark.parametrize(
    ("change", "job", "reason"),
    [
        *(({}, {"state": state, "exit_code": None}, "when the wait ended") for state in ("PENDING", "RUNNING", "")),
        ({"max_bytes": 1024 * MIB}, {}, "no complete row for 1 GiB"),
        ({"max_bytes": 1024 * MIB, "gate_bytes": 1024 * MIB}, {}, "no complete row for 1 GiB"),
        ({"ranks": 4}, {}, "2 ranks took part instead of 4"),
        ({"ranks": 4, "nodes": 3}, {}, "2 nodes instead of 3"),
        ({}, {"exit_code": None}, "exit code is unknown"),
    ],
)
def test_less_than_was_asked_for_is_inconclusive(change, job, reason):
    result = judge(dataclasses.replace(ASKED, **change), report(**job))
    assert result["verdict"] == "INCONCLUSIVE"
    assert reason in result["reason"]


def test_a_killed_measurement_keeps_its_finished_rows_and_fails():
    asked = dataclasses.replace(MPI_ASKED, max_bytes=256 * MIB, nodes=1)
    result = judge(asked, report(output_of("mpi-cpu-1x2-killed"), state="TIMEOUT", exit_code=0, signal=15))
    assert result["verdict"] == "FAIL"
    assert len(result["rows"]) == 5
    assert result["busbw_gb_per_s"] == pytest.approx(4 * MIB / 3653.22 / 1e3)
    assert result["average_busbw_gb_per_s"] is None


# Nodes that other jobs are on.

BUSY = {
    "job_id": None, "state": "BUSY", "exit_code": None, "seconds": None, "nodes": [], "output": "",
    "facts": {"b": "job 12 of ada, 55:00 left"}, "left_out": ["b"], "measured_at": 1_800_000_000 + 3 * 3600,
}  # fmt: skip
LAST = {
    "job_id": 3, "state": "COMPLETED", "exit_code": 0, "seconds": 9, "nodes": ["a", "b"], "output": REAL,
    "measured_at": 1_800_000_000,
}  # fmt: skip


def test_busy_nodes_are_a_verdict_of_their_own_with_the_last_figure_and_its_age():
    result = judge(ASKED, JobReport.from_json({**BUSY, "last": LAST}))
    assert (result["verdict"], result["busbw_gb_per_s"], result["rows"]) == ("BUSY", None, [])
    assert (result["measured_at"], result["left_out"]) == ("2027-01-15T11:00:00Z", ["b"])
    last = result["last"]
    assert last is not None
    assert last["busbw_gb_per_s"] == pytest.approx(1.860, abs=5e-4)
    assert (last["nodes"], last["measured_at"], last["age_seconds"]) == (["a", "b"], "2027-01-15T08:00:00Z", 10800)
    assert result["reason"].startswith("Other jobs are on b (b: job 12 of ada, 55:00 left). The last measurement, ")
    assert result["reason"].endswith("3 hours ago on a, b, gave 1.860 GB/s at 256 MiB. The next up tries again.")


@pytest.mark.parametrize(
    "damage",
    [
        {"state": "FAILED", "exit_code": 3},
        {"exit_code": 7},
        {"output": REAL[: REAL.index("# Out of")]},
        {"output": output_of("nccl-tests-2.19-2x1-wrong")},
        {"output": ""},
    ],
)
def test_a_last_measurement_that_was_not_whole_and_right_gives_no_figure(damage):
    last = judge(ASKED, JobReport.from_json({**BUSY, "last": {**LAST, **damage}}))["last"]
    assert last is not None
    assert (last["busbw_gb_per_s"], last["age_seconds"]) == (None, 10800)


CHECK = dataclasses.replace(ASKED, runs=3, min_bytes=256 * MIB)


def three(*speeds: float, wrong: str = "") -> JobReport:
    """Three runs at the gate size in GB/s; `wrong` takes the place of a whole one of them, the second."""
    tables = [table(["a", "b"], 1, [256 * MIB], speed) for speed in speeds]
    if wrong:
        tables[1] = wrong
    return report(tables[0], repeats=tables[1:], log=log("a", *SOCKETS) + log("b", *SOCKETS))


def test_a_spread_above_the_limit_of_its_transport_is_no_pass():
    within, beyond = judge(CHECK, three(4.0, 3.0, 4.0)), judge(CHECK, three(4.0, 2.0, 4.0))
    assert (within["verdict"], beyond["verdict"]) == ("PASS", "UNSTABLE")
    assert "run 2 is the slow one" in beyond["reason"]
    # A floor that is missed says more than a spread.
    assert judge(dataclasses.replace(CHECK, floor_gb_per_s=9), three(4.0, 2.0, 4.0))["verdict"] == "FAIL"
    assert judge(dataclasses.replace(CHECK, floor_gb_per_s=None), three(4.0, 2.0, 4.0))["verdict"] == "UNSTABLE"


def test_the_row_at_the_gate_is_that_of_the_run_that_is_judged():
    result = judge(CHECK, three(3.0, 4.0, 4.1))
    (row,) = result["rows"]
    assert row["out_of_place"]["busbw_gb_per_s"] == result["busbw_gb_per_s"] == pytest.approx(4.0, rel=1e-3)
    assert result["peak_busbw_gb_per_s"] == result["busbw_gb_per_s"]
    assert result["spread"] is not None
    assert result["spread"]["runs"] == pytest.approx([3.0, 4.0, 4.1], rel=1e-3)


def test_wrong_data_is_proven_by_the_run_and_size_that_has_it_and_no_noise_is_quoted():
    damaged = table(["a", "b"], 1, [256 * MIB], 4.0).replace("  0\n#", "  12\n#").replace(" 0 OK", " 12 FAILED")
    told = three(4.0, 4.0, 4.0, wrong=damaged)
    noise = "".join("[a:1] btl_tcp: Unable to find reachable pairing between interfaces\n" for _ in range(9))
    result = judge(CHECK, dataclasses.replace(told, output=told.output + noise))
    assert result["verdict"] == "FAIL"
    assert "run 2 at 256 MiB: 12 in place; run 2 ends with 'Out of bounds values : 12'" in result["reason"]
    assert "pairing" not in result["reason"]


def test_a_measurement_of_new_nodes_and_peers_names_the_nodes_left_out():
    asked = dataclasses.replace(ASKED, nodes=4, ranks=4)
    result = judge(asked, report(left_out=["c", "d"], measured_at=1_800_000_000))
    assert (result["verdict"], result["left_out"], result["nodes"]) == ("PASS", ["c", "d"], ["a", "b"])
    assert "between a, b only, because other jobs were on c, d" in result["reason"]
    # Two ranks where four should have met are no measurement.
    assert judge(asked, report())["verdict"] == "INCONCLUSIVE"


def test_a_node_that_is_down_is_not_busy():
    found = {**BUSY, "state": "UNAVAILABLE", "facts": {}, "node_states": "b: Not responding"}
    result = judge(ASKED, JobReport.from_json(found))
    assert (result["verdict"], result["last"]) == ("INCONCLUSIVE", None)
    assert result["reason"] == "Nothing was measured: b cannot run a job. Node states: b: Not responding."
    told = {"absent": {"b": "drained: new disk"}}
    result = judge(ASKED, JobReport.from_json({**found, **told}))
    assert result["reason"] == "Nothing was measured: b (drained: new disk) cannot run a job."


def test_a_node_with_several_gpus_keeps_its_result_unless_measured_alone():
    gpus = {"a": "h200:2", "b": "h200:2", "c": "h200:1"}
    before = {"a": {"verdict": "PASS", "gpus": {"a": "h200:2"}}, "b": {"verdict": "PASS", "gpus": {"b": "h100:2"}}}
    nothing = judge(ASKED, JobReport.from_json({**BUSY, "state": "UNAVAILABLE"}))
    kept = not_measured_alone(gpus, 0, nothing, before)
    assert {name: result["verdict"] for name, result in kept.items()} == {"a": "PASS", "b": "INCONCLUSIVE"}
    # Another machine's result is not this one's.
    assert not_measured_alone(gpus, 0, judge(ASKED, report()), before).keys() == {"a"}


def test_a_verdict_names_idle_nodes_left_out_and_the_reason():
    asked = dataclasses.replace(ASKED, nodes=4, ranks=4)
    result = judge(asked, report(left_out=["c", "d"], absent={"c": "down*"}))
    assert "between a, b only, because other jobs were on d, without c (down*)" in result["reason"]
    result = judge(asked, report(left_out=["c", "d"], absent={"c": "measured before", "d": "measured before"}))
    assert "between a, b only, without c (measured before), d (measured before), at or above" in result["reason"]
