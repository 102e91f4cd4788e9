"""The head node's figures are made of words of users and of nodes' roots: none of these takes other figures along."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.sll import snapshot
from components.roles.monitoring.monitoring import figures
from components.roles.monitoring.monitoring.figures import TRAINING
from components.roles.monitoring.monitoring.role import collector_settings
from components.roles.monitoring.monitoring.slurm_figures import Metric
from stacks.config import parse
from tests.unit.configs import LAB


@pytest.fixture
def head_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What figures of the head node are made of, in a folder; a1 and a2 are members."""
    for name in ("SETTINGS", "MEMBERS", "REPORTS", "BACKUP", "SLURM_STATE", "NAMES", "CERTIFICATE", "DEVICES"):
        monkeypatch.setattr(figures, name, tmp_path / name)
    for name in ("MEMBERS/a1", "MEMBERS/a2", "REPORTS", "SLURM_STATE", "out"):
        (tmp_path / name).mkdir(parents=True)
    told_ = json.loads(collector_settings(parse({**LAB, "monitoring": {}}, base_dir=Path())))
    figures.SETTINGS.write_text(json.dumps({**told_, "share": str(tmp_path)}))
    return tmp_path


def test_made_up_nodes_and_partitions_give_few_figures(head_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = [f"p{number}" for number in range(5000)]
    nodes = [{"name": name, "state": ["DOWN"], "partitions": made_up} for name in ("a1", "reboot-me", "$(reboot)")]
    answers = {"jobs": {"jobs": []}, "nodes": {"nodes": nodes}}
    monkeypatch.setattr(snapshot, "scontrol", lambda *words: json.dumps(answers[words[1]]))
    figures.write(head_node / "out", "slurm", figures.slurm)
    text = (head_node / "out" / "slurm.prom").read_text()
    assert 'tailrack_slurm_node_out{node="a1"} 1.0' in text
    assert "reboot" not in text
    assert text.count("\n") < 2000


def test_a_report_of_any_words_takes_no_other_figures_of_the_head_node_along(
    head_node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = {f"x{number}": "h200:8" for number in range(5000)}
    kept: Mapping[str, Any]
    for kept in ({"measured_at": 10**400}, {"state": {}, "nodes": {"a": []}}, {"alone": [{"gpus": many}]}):
        (figures.REPORTS / "cloud-a.json").write_text(json.dumps(kept))
        (figures.REPORTS / f"{TRAINING}.json").write_text(json.dumps(kept))
        assert figures.main([str(head_node / "out"), "measured", "head", "certificate"]) == 0, kept.keys()
        head = (head_node / "out" / "head.prom").read_text()
        assert 'tailrack_collector_success{collector="head"} 1.0' in head, kept.keys()
        assert {line.split()[0] for line in head.splitlines() if line.startswith("tailrack_s")} == {
            "tailrack_share_bytes", "tailrack_share_available_bytes",
            "tailrack_slurm_state_bytes", "tailrack_slurm_state_available_bytes",
        }, kept.keys()  # fmt: skip
        assert 'node="x' not in (head_node / "out" / "measured.prom").read_text(), kept.keys()
        assert (head_node / "out" / "certificate.prom").exists(), kept.keys()
        assert len(capsys.readouterr().err) < 1000, kept.keys()


def test_too_many_figures_are_none_and_the_log_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [Metric("tailrack_gpus", "Many.", [({"gpu": str(number)}, 1) for number in range(figures.MOST_FIGURES + 1)])]
    figures.write(tmp_path, "gpus", lambda: many)
    assert 'tailrack_collector_success{collector="gpus"} 0.0' in (tmp_path / "gpus.prom").read_text()
    assert "tailrack_gpus" not in (tmp_path / "gpus.prom").read_text()
    assert "6001 metrics" in capsys.readouterr().err
