"""Figures as Prometheus reads them: of Slurm, the tailnet, GPUs, the measurement; and what of the config is refused."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.roles.monitoring.monitoring import figures
from components.roles.monitoring.monitoring.figures import gpu_figures, measured_figures, read_names, tailnet_figures
from components.roles.monitoring.monitoring.role import collector_settings, rules
from components.roles.monitoring.monitoring.slurm_figures import Metric, exposition, node_state, slurm_figures
from components.roles.role import folder_of
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError
from stacks.config import parse
from tests.unit.configs import LAB, refusal

FIXTURES = Path(__file__).parents[3] / "fixtures"
ALL = frozenset({"all", "site-x"})
NODES = [
    Node("a1", frozenset({"ALLOCATED"}), gpus="h200:8", partitions=ALL),
    Node("a2", frozenset({"IDLE", "DRAIN"}), "disk", gpus="h200:8, a100:4", partitions=ALL),
    Node("b1", frozenset({"IDLE"}), partitions=frozenset({"all"})),
]
JOBS = [
    Job(1, "x", "ada", 6001, ("RUNNING",), partition="all", nodes="a1", resources="cpu=4,gres/gpu=6"),
    Job(2, "x", "ada", 6001, ("PENDING",), partition="gone,site-x", resources="cpu=4,gres/gpu=60"),
    Job(3, "x", "ada", 6001, ("COMPLETED",), partition="all"),
    Job(4, "x", "ada", 6001, ("RUNNING", "COMPLETING"), partition="all"),
]


def values(metrics: Sequence[Metric], name: str) -> dict[tuple[str, ...], float]:
    """The figures of one name by the values of their labels."""
    return {tuple(labels.values()): value for each in metrics if each.name == name for labels, value in each.samples}


def test_any_label_value_stays_one_label_on_one_line() -> None:
    metric = Metric("x", "An x.", [({"a": 'q"\\}\n1\x1b\ud800'}, 1), ({}, 2.5)], "counter")
    assert exposition([metric, Metric("none", "Nothing.", [])]) == (
        '# HELP x An x.\n# TYPE x counter\nx{a="q\\"\\\\} 1  "} 1.0\nx 2.5\n'
    )


def test_nodes_jobs_and_gpus_are_counted_by_partition_and_state_without_holes() -> None:
    found = slurm_figures(JOBS, NODES)
    nodes = values(found, "tailrack_slurm_nodes")
    assert {key: value for key, value in nodes.items() if value} == {
        ("all", "allocated"): 1, ("all", "drained"): 1, ("all", "idle"): 1,
        ("site-x", "allocated"): 1, ("site-x", "drained"): 1,
    }  # fmt: skip
    assert nodes["site-x", "idle"] == 0
    jobs = values(found, "tailrack_slurm_jobs")
    assert {key: value for key, value in jobs.items() if value} == {
        ("all", "running"): 1, ("all", "completing"): 1, ("site-x", "pending"): 1,
    }  # fmt: skip
    assert values(found, "tailrack_slurm_node_out") == {("a1",): 0, ("a2",): 1, ("b1",): 0}
    assert values(found, "tailrack_slurm_gpus") == {(): 20}
    assert values(found, "tailrack_slurm_gpus_in_use") == {(): 6}
    assert values(found, "tailrack_slurm_gpus_unused") == {(): 0}
    assert "ada" not in exposition(found)


def test_a_node_is_in_one_state() -> None:
    for flags, state in (
        ({"DOWN", "DRAIN"}, "down"), ({"IDLE", "NOT_RESPONDING"}, "down"), ({"MIXED", "DRAIN"}, "draining"),
        ({"MIXED"}, "mixed"), ({"COMPLETING", "IDLE"}, "completing"), ({"FUTURE"}, "unknown"),
    ):  # fmt: skip
        assert node_state(Node("a1", frozenset(flags))) == state, flags


def peer(address: str, **more: object) -> dict[str, object]:
    return {"HostName": 'x"}', "TailscaleIPs": [address], "RxBytes": 7, "TxBytes": 9, "Active": True, **more}


def test_paths_are_those_to_members_that_the_machine_speaks_with_under_the_names_of_the_cluster() -> None:
    peers = {
        "1": peer("100.64.0.1", CurAddr="203.0.113.1:41641"),
        "2": peer("100.64.0.2", CurAddr="", Relay="fra"),
        "3": peer("100.64.0.3", CurAddr="", Active=False),
        "4": peer("100.64.9.9", CurAddr=""),
    }
    names = read_names("100.64.0.1 head\n100.64.0.2 a2\n100.64.0.3 a3\n\n")
    found = tailnet_figures(json.dumps({"Peer": peers}), names)
    assert values(found, "tailrack_tailnet_direct") == {("head",): 1, ("a2",): 0}
    assert values(found, "tailrack_tailnet_received_bytes_total") == {("head",): 7, ("a2",): 7, ("a3",): 7}
    assert tailnet_figures('{"Peer": null}', names)[0].samples == []


@pytest.mark.parametrize("said", ["", "[]", '{"Peer": [1]}', '{"Peer": {"a": 1}}'])
def test_a_tailscale_that_says_something_else_is_an_error_of_its_collector(said: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        tailnet_figures(said, {})


def test_gpu_figures_use_bytes_and_ratios_and_omit_missing_values() -> None:
    real = gpu_figures("0, NVIDIA H200, 0, 0, 143771, 43, 81.93, 0\n")  # of a machine with one
    assert values(real, "tailrack_gpu_memory_bytes") == {("0", "NVIDIA H200"): 143771 * 2**20}
    assert all(metric.samples for metric in real)
    found = gpu_figures(
        "0, NVIDIA H200, 50, 1024, 143771, 40, 120.5, 0\n1, NVIDIA H200, 0, 0, 143771, 38, [N/A], [N/A]\n"
    )
    assert values(found, "tailrack_gpus") == {(): 2}
    assert values(found, "tailrack_gpu_utilization_ratio") == {("0", "NVIDIA H200"): 0.5, ("1", "NVIDIA H200"): 0}
    assert values(found, "tailrack_gpu_memory_used_bytes")["0", "NVIDIA H200"] == 2**30
    assert values(found, "tailrack_gpu_power_watts") == {("0", "NVIDIA H200"): 120.5}
    with pytest.raises(ValueError, match="nvidia-smi does not print"):
        gpu_figures("No devices were found\n")


def measured(kept: Mapping[str, Any], floors: Mapping[str, float]) -> list[Metric]:
    told_ = json.loads(collector_settings(parse({**LAB, "validation": {"floors_gb_per_s": floors}}, base_dir=Path())))
    return measured_figures(told_, {"cloud-a": kept}, {"a1", "b1"})


MEASURED = {
    "job_id": 7, "state": "COMPLETED", "exit_code": 0, "seconds": 9, "nodes": ["a1", "b1"], "measured_at": 1790000000,
    "output": (FIXTURES / "nccl_tests" / "mpi-cpu-2x1-tcp-eth0.txt").read_text(),
}  # fmt: skip


def test_a_measurement_is_a_figure_with_its_floor_verdict_and_moment() -> None:
    for floors, verdict in (({"cloud-a": 0.1}, "PASS"), ({"cloud-a": 1.5}, "FAIL"), ({}, "UNJUDGED")):
        found = measured(MEASURED, floors)
        assert values(found, "tailrack_busbw_gb_per_s") == {
            ("cloud-a", "all_reduce", "4194304"): pytest.approx(1.09, abs=0.005)
        }, floors
        assert [*values(found, "tailrack_busbw_floor_gb_per_s").values()] == [*floors.values()], floors
        verdicts = values(found, "tailrack_measurement_verdict")
        assert [word for (_, word), value in verdicts.items() if value] == [verdict], floors
        assert len(verdicts) == 6, floors
        assert values(found, "tailrack_measured_timestamp_seconds") == {("cloud-a",): 1790000000}, floors


def test_a_measurement_that_is_no_report_has_a_verdict_and_no_bandwidth() -> None:
    for kept in ({}, {"state": 7}, {"nodes": "x", "gpus": {"a1": 3}, "asked": {}}, {"measured_at": "x"}):
        found = measured(kept, {})
        assert values(found, "tailrack_busbw_gb_per_s") == {}
        verdicts = {key: value for key, value in values(found, "tailrack_measurement_verdict").items() if value}
        assert len(verdicts) == 1
        assert not {"PASS", "UNJUDGED"} & {verdict for _, verdict in verdicts}


def test_a_failed_collector_removes_its_old_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures.write(tmp_path, "slurm", lambda: slurm_figures(JOBS, NODES))
    file = tmp_path / "slurm.prom"
    assert 'tailrack_collector_success{collector="slurm"} 1.0' in file.read_text()
    assert "tailrack_slurm_gpus 20.0" in file.read_text()

    def away() -> Sequence[Metric]:
        raise SlurmError("slurmctld has not answered for 30 s")

    figures.write(tmp_path, "slurm", away)
    assert 'tailrack_collector_success{collector="slurm"} 0.0' in file.read_text()
    assert "tailrack_slurm" not in file.read_text()
    assert "slurmctld has not answered" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["slurm.prom"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_busy_scope_keeps_its_figure_and_the_backup_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "REPORTS", tmp_path)
    for name, of in (("x", 1), ("x.last", 2), ("y.last", 3)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"of": of}))
    (tmp_path / "z.json").write_text("damaged")
    assert {scope: kept["of"] for scope, kept in figures._reports().items()} == {"x": 1, "y": 3}
    monkeypatch.setattr(figures, "BACKUP", tmp_path / "backup-state")
    assert figures._backup() == ()
    for text, moment in (("done=1790000000\n", 1790000000), ("done=\nfailed=3\nreason=a=b\n", 0)):
        figures.BACKUP.write_text(text)
        assert values(figures._backup(), "tailrack_backup_timestamp_seconds") == {(): moment}


# The config.


def test_ports_and_retention_that_make_no_sense_are_refused() -> None:
    for section, words in (
        ({"retention_days": 0}, "monitoring.retention_days: 0 is not a whole number from 1 to 3650"),
        ({"retention_gb": "5G"}, "monitoring.retention_gb: '5G' is not a whole number from 1 to 10000"),
        ({"retention_gb": 10**9}, "monitoring.retention_gb: 1000000000 is not"),
        ({"port": 80}, "monitoring.port: 80 is not a whole number from 1024 to 65535"),
        ({"port": 6817}, "monitoring.port: 6817 is a port of another daemon;"),
        ({"exporter_port": 60500}, "monitoring.exporter_port: 60500 is a port of another"),
        ({"exporter_port": 9090}, "monitoring.exporter_port: 9090 is also the port of Prometheus"),
        ({"port": 9100}, "monitoring.port: 9100 is also the port of the node exporter"),
        ({"retention": 3}, "monitoring.retention"),
    ):
        assert words in refusal({"monitoring": section}), section


PROMTOOL = Path(__file__).parents[4] / ".tailrack/tools/usr/bin/promtool"  # cli/setup.sh


def test_each_rule_raises_its_alert(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules().replace("@HEAD@", "head"), encoding="utf-8")
    shutil.copy(FIXTURES / "prometheus" / "rules_test.yml", tmp_path)
    collects_no_garbage = {"GOGC": "off", "GOMEMLIMIT": "400MiB", "GOMAXPROCS": "1"}  # half the time
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "rules_test.yml"],
        cwd=tmp_path,
        env=collects_no_garbage,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_a_summary_and_a_remedy() -> None:
    text = (folder_of("monitoring") / "templates" / "alerts.yml").read_text(encoding="utf-8")
    tests = (FIXTURES / "prometheus" / "rules_test.yml").read_text(encoding="utf-8")
    alerts = [line.split()[-1] for line in text.splitlines() if "- alert:" in line]
    assert len(alerts) == text.count("remedy:") == text.count("summary:") > 5
    for alert in alerts:
        raised = tests.split(f"        alertname: {alert}\n        exp_alerts:\n")
        assert len(raised) > 1, alert
