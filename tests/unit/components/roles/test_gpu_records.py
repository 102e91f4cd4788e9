"""The deep check's records of GPUs on the head node: what is stored, compared, shown and drained."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.tailrack import nodes
from components.roles.monitoring.health import deep_check, gpu_records
from components.roles.monitoring.health.deep_check import DeepCheck
from components.roles.monitoring.health.gpu_records import GpuRecords, published
from components.slurm_commands.nodes import Node
from components.validation import measurement_run
from components.validation.became_slow import Measured
from components.validation.preflight.drain import DEEP_PREFIX
from components.validation.preflight.findings import finding
from components.validation.preflight.gpu_health import Reading, line
from tests.unit.components.roles.test_deep_check import IDLE, FakeSlurm, told
from tests.unit.simulated_slurm import SimulatedSlurm

CARD = Reading("0000:10:00.0", "GPU-0", "NVIDIA H200", 0, 16, 5, True, 55.3, 55.1, 4240.0, 750.0, "bf16", True)
SICK = {"width": 4, "gen": 4, "host_to_gpu": 6.4, "gpu_to_host": 6.4}


def cards(**last: Any) -> list[Reading]:
    """Four GPUs, of which the last one differs."""
    gpus = [replace(CARD, bus=f"0000:1{minor}:00.0", uuid=f"GPU-{minor}", minor=minor) for minor in range(4)]
    return [*gpus[:3], replace(gpus[3], **last)]


def report(readings: list[Reading], node: str = "a1") -> dict[str, Any]:
    return {"gpu_speed": line(node, readings) + "\n"}


@pytest.fixture
def records(tmp_path: Path) -> GpuRecords:
    return GpuRecords(tmp_path, tmp_path / "shown.json")


def test_the_sick_gpu_is_published_for_all_users_and_goes_when_it_is_well(records: GpuRecords, tmp_path: Path) -> None:
    (item,) = records.judge("a1", "100.64.0.1", report(cards(**SICK)))
    shown = tmp_path / "shown.json"
    assert published(shown) == {"a1": [item]}
    assert shown.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "gpus/a1.json").stat().st_mode & 0o777 == 0o600
    assert records.judge("a1", "100.64.0.1", report(cards())) == []
    assert published(shown) == {}


def test_information_and_findings_of_a_node_that_left_are_not_published(records: GpuRecords, tmp_path: Path) -> None:
    shown = tmp_path / "shown.json"
    doubtful = [replace(card, matrix=None, doubts=("no cuBLAS",)) for card in cards()]
    assert [item["severity"] for item in records.judge("a1", "", report(doubtful))] == ["info"]
    assert published(shown) == {}
    records.judge("a1", "", report(cards(**SICK)))
    (tmp_path / "gpus/a1.json").unlink()
    records.publish()
    assert published(shown) == {}
    shown.write_text('{"a1": [7]}')
    assert published(shown) == {}


def test_a_gpu_is_compared_with_its_first_figure_until_that_is_forgotten(records: GpuRecords) -> None:
    slow = [replace(card, host_to_gpu=12.0, gpu_to_host=12.0) for card in cards()]
    assert records.judge("a1", "100.64.0.1", report(cards())) == []
    for _ in range(2):
        (item,) = records.judge("a1", "100.64.0.1", report(slow))
        assert (item["severity"], "became slow: it had 55.3 GB/s" in item["seen"]) == ("error", True)
    records.forget("a1")
    (item,) = records.judge("a1", "100.64.0.1", report(slow))
    assert (item["severity"], "a healthy H200" in item["seen"]) == ("warning", True)
    # Another machine under the name.
    records.forget("a1")
    records.judge("a1", "100.64.0.1", report(cards()))
    (item,) = records.judge("a1", "100.64.0.9", report(slow))
    assert item["severity"] == "warning"


def test_the_other_nodes_gpus_of_the_kind_are_compared(records: GpuRecords) -> None:
    other = [replace(card, name="NVIDIA H20") for card in cards()]
    records.judge("a2", "", report(other, "a2"))
    (item,) = records.judge("a1", "", report([replace(other[0], memory=900.0)]))
    assert "the cluster's other NVIDIA H20 have 4240 GB/s" in item["seen"]


def test_a_report_without_readings_changes_nothing(records: GpuRecords, tmp_path: Path) -> None:
    for bad in (None, {}, {"gpu_speed": 7}, {"gpu_speed": "# tailrack gpu-speed a1 []"}, report([], "a2")):
        records.judge("a1", "", report(cards(**SICK)))
        before = (tmp_path / "gpus/a1.json").read_text()
        assert records.judge("a1", "", bad) == [], bad
        assert (tmp_path / "gpus/a1.json").read_text() == before, bad
        (tmp_path / "gpus/a1.json").write_text("[7")
        assert len(records.judge("a1", "", report(cards(**SICK)))) == 1, bad


# The deep check


def test_a_clear_fault_drains_the_node_and_names_the_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake, played = FakeSlurm(), list[Any]()
    monkeypatch.setattr("components.slurm_commands.slurm.nodes", fake.nodes)
    monkeypatch.setattr("components.slurm_commands.slurm.scontrol", fake.scontrol)
    monkeypatch.setattr("components.node.locks.PRIVATE", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(deep_check, "REPORTS", tmp_path / "validation")
    monkeypatch.setattr(gpu_records, "FINDINGS", tmp_path / "shown.json")
    monkeypatch.setattr(deep_check, "read_report", lambda *_: Measured(364.8, tolerance=0.15))
    checks = DeepCheck(told(), lambda *_: played.pop(0), tmp_path / "kept")

    def flags_after(*reports: Any) -> frozenset[str]:
        played[:] = reports
        deep_check.run(checks, ["a1"])
        return fake.nodes_by_name["a1"].flags

    assert "DRAIN" in flags_after(report(cards(**SICK)), {})
    reason = fake.nodes_by_name["a1"].reason
    gpu = "GPU 3 (0000:13:00.0): 6.4 GB/s from the host over PCIe 4 x4; its"
    assert reason.startswith(f"{DEEP_PREFIX}GPU speed: {gpu}")
    assert "55.3 GB/s over PCIe 5 x16" in reason
    assert flags_after(report(cards())) == IDLE, "it is repaired"
    # A person resumes the node with the sick GPU.
    assert "DRAIN" in flags_after(report(cards(**SICK)), {})
    fake.set("a1", *IDLE)
    assert flags_after(report(cards(**{**SICK, "host_to_gpu": 6.3}))) == IDLE


def test_the_measurement_reads_the_job_that_prepares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = Node("a1", IDLE, gpus="h200:4")
    simulated = SimulatedSlurm(lambda _: 364.8, {"a1": "h200:4"})

    def run(orders: Any, limits: Any) -> list[dict[str, Any]]:
        reports = simulated.run(orders, limits)
        reports[0]["output"] += report(cards())["gpu_speed"]
        return reports

    monkeypatch.setattr(measurement_run, "run_jobs", run)
    task = json.loads(json.dumps(deep_check.program_input(told(dcgm_level=0), node, each_gpu=True)))
    measured = measurement_run.MeasurementRun(task["plan"], task["nodes"], {}, tmp_path).measure()
    assert measured["gpu_speed"] == report(cards())["gpu_speed"]
    assert simulated.orders[0].arguments == ["gpu-check"]
    assert deep_check.program_input(told(), node, each_gpu=False)["plan"]["preflight"] == ""
    no_gpus = Node("a1", IDLE)
    assert deep_check.program_input(told(), no_gpus, each_gpu=True)["plan"]["preflight"] == ""


# tailrack nodes


def test_tailrack_nodes_shows_the_gpu_findings_of_a_node() -> None:
    item = finding("warning", "GPU speed", "GPU 3: PCIe x4; its neighbours have x16", "check the riser")
    shown = [Node("a1", IDLE), Node("a2", IDLE)]
    why = dict.fromkeys(("a1", "a2"))
    text = nodes.as_text(shown, why, 0, {"a2": [item]})
    assert text.splitlines()[1:4] == [
        "a2  idle",
        "    deep check: GPU 3: PCIe x4; its neighbours have x16",
        "    next: check the riser",
    ]
    assert text.endswith("all 2 nodes take work")
    rows = json.loads(nodes.as_json(shown, why, {"a2": [item]}))["nodes"]
    assert "gpus" not in rows[0]
    assert rows[1]["gpus"] == [
        {"severity": "warning", "seen": "GPU 3: PCIe x4; its neighbours have x16", "next": "check the riser"}
    ]
