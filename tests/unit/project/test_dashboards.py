"""Tests for Grafana's dashboards; that each panel has data, tests/faults/test_monitoring.py sees."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from components.roles.role import folder_of
from tests.dashboards import Asked, dashboards, every_expression
from tests.grafana_schema import UNITS, faults

ROOT = Path(__file__).parents[3]
PROMTOOL = ROOT / ".tailrack/tools/usr/bin/promtool"  # cli/setup.sh
READERS = "\n".join(path.read_text(encoding="utf-8") for path in folder_of("monitoring").glob("*.py"))
READ = {*re.findall(r'"(tailrack_\w+)"', READERS)}


def test_there_is_one_of_each_subject_with_names_and_places_of_its_own() -> None:
    found = dashboards()
    assert found.keys() == {"cluster", "gpu", "jobs"}
    for name, dashboard in found.items():
        assert dashboard["uid"] == f"tailrack-{name}"
        panels = dashboard["panels"]
        assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len({*cells}) == len(cells), f"panels of {name} lie on each other"
        assert all(x < 24 for x, _ in cells)


def test_no_panel_counts_a_node_twice_or_draws_many_lines_a_node() -> None:
    assert len(every_expression()) > 30
    for asked in every_expression():
        assert not re.search(r"sum by \(state\) \(tailrack_slurm_nodes|mode!=|}} to {{peer", asked.expression), asked
        assert "tailrack_tailnet_direct" not in asked.expression or "sum by (instance)" in asked.expression, asked
        assert "or vector(0)" not in asked.expression or "by (" not in asked.expression, f"{asked}: an empty legend"


@pytest.mark.parametrize("name", dashboards())
def test_grafanas_own_schema_has_every_key_and_value_of_it(name: str) -> None:
    dashboard = dashboards()[name]
    assert faults(dashboard) == []
    assert {*re.findall(r'"unit": "(.*?)"', json.dumps(dashboard))} <= UNITS


@pytest.mark.parametrize("asked", every_expression(), ids=lambda asked: f"{asked.dashboard}: {asked.panel}")
def test_a_panel_asks_for_figures_that_are_collected(asked: Asked) -> None:
    named = {*re.findall(r"\b(?:tailrack|node)_\w+|\b(?:up|ALERTS)\b", asked.expression)}
    assert named, "it asks for no figure"
    assert {name for name in named if name.startswith("tailrack_")} <= READ


def test_each_variable_that_a_panel_has_is_declared_and_each_that_is_declared_is_used() -> None:
    for name, dashboard in dashboards().items():
        declared = {variable["name"] for variable in dashboard["templating"]["list"]}
        used = {*re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"]))}
        assert used - {"__all"} == declared, name
        for variable in dashboard["templating"]["list"]:
            assert {*re.findall(r"tailrack_\w+", variable.get("definition", ""))} <= READ


def test_each_figure_of_the_subjects_that_have_a_dashboard_is_on_one() -> None:
    shown = {name for asked in every_expression() for name in re.findall(r"tailrack_\w+", asked.expression)}
    subjects = ("tailrack_gpu", "tailrack_slurm_", "tailrack_busbw_")
    assert len(READ & shown) > 15
    assert {name for name in READ - shown if name.startswith(subjects)} == set()


def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": asked.expression} for n, asked in enumerate(every_expression())]
    (tmp_path / "alerts.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint=none", "alerts.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
