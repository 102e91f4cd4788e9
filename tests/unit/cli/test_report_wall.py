"""What the report's page has for the wall: each scope through time against its floor, and what the cluster costs."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.money import amounts as module
from cli.money.amounts import ClusterCosts, cluster_costs
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.report.chart import BOTTOM, HISTORY_HEIGHT, LEFT, TOP, WIDTH, timeline
from cli.report.page import page
from components.roles.commands.tailrack.costs import ESTIMATE, Cost
from components.validation.results import Entry
from tests.unit.cli.test_report_page import EVIL, Read, outputs  # noqa: F401 - a fixture

COST = Cost("r1", 2.05, "EUR", there=True, busy=False, idle_seconds=7500, month=41.0, month_hours=20.0, used_hours=10.0)


def entry(day: int, figure: float | None, floor: float | None = 36.0, verdict: str = "PASS") -> Entry:
    return Entry(
        measured_at=f"2026-11-{day:02}T08:00:00Z", busbw_gb_per_s=figure, floor_gb_per_s=floor, verdict=verdict, nodes=2
    )


def test_a_history_lies_within_its_frame_in_the_order_of_time() -> None:
    failed = [entry(10, None, verdict="FAIL"), entry(15, 30.0, verdict="FAIL")]
    drawn = timeline([entry(20, 41.0), entry(1, 40.0), *failed])
    assert drawn is not None
    assert [dot["verdict"] for dot in drawn["dots"]] == ["PASS", "FAIL", "FAIL", "PASS"]
    assert [dot["x"] for dot in drawn["dots"]] == sorted(dot["x"] for dot in drawn["dots"])
    for dot in drawn["dots"]:
        assert LEFT <= dot["x"] <= WIDTH
        assert TOP <= dot["y"] <= HISTORY_HEIGHT - BOTTOM
    assert drawn["dots"][1]["y"] == HISTORY_HEIGHT - BOTTOM, "what has no figure lies on the axis"
    assert len(drawn["line"].split()) == 3, "and no line goes there"
    assert drawn["days"][0]["text"] == "2026-11-20"
    described = "4 measurements since 2026-11-01, from 30.00 to 41.00 GB/s; the last 2026-11-20 08:00"
    assert drawn["description"].startswith(described)


def test_the_page_draws_each_scope_through_time(outputs: dict[str, Any]) -> None:  # noqa: F811
    rack = outputs["validation"]["rack"]
    rack |= {"measured_at": "2026-11-21T08:00:00Z", "history": [entry(1, 4.6, 4.5), entry(9, 4.2, 4.5, "FAIL")]}
    found = Read(page(outputs, "prod", "now"))
    words = " ".join(found.words.split())
    assert "Bus bandwidth over time" in words
    assert "3 measurements since 2026-11-01" in words
    dots = [each for name, each in found.elements if name == "circle" and (each.get("class") or "").startswith("dot")]
    assert [each["class"] for each in dots] == ["dot pass", "dot fail", f"dot {rack['verdict'].lower()}"]


def test_a_history_that_says_otherwise_stays_words(outputs: dict[str, Any]) -> None:  # noqa: F811
    rack = outputs["validation"]["rack"]
    rack["history"] = [entry(1, 4.6, 4.5, "PASS")]
    clean = Read(page(outputs, "prod", "now"))
    rack["history"] = [{**entry(1, 4.6, 4.5), "verdict": EVIL}, {"measured_at": EVIL, "verdict": "PASS"}]
    found = Read(page(outputs, "prod", "now"))
    assert [name for name, _ in found.elements] == [name for name, _ in clean.elements]


def test_the_page_shows_costs_and_idle_users(outputs: dict[str, Any]) -> None:  # noqa: F811
    costs = ClusterCosts(["4.10 EUR an hour now; 82.00 EUR since 2026-11-01 00:00 UTC"], ESTIMATE, [COST])
    words = " ".join(Read(page(outputs, "prod", "now", costs)).words.split())
    assert "4.10 EUR an hour now; 82.00 EUR since" in words
    assert "r12 h 5 min 2.05 EUR41.00 EUR" in words, "cells, which have no blank between them"
    assert "Estimates: " in words
    assert "Costs" not in Read(page(outputs, "prod", "now")).words


# Where the figures come from.

PRICED = {"cluster": {"head": "head", "currency": "EUR", "nodes": [{"name": "r1", "price_per_hour": 2.05}]}}


def asked(monkeypatch: pytest.MonkeyPatch, said: str | CliError) -> ClusterCosts | None:
    def ask(*_: Any) -> str:
        if isinstance(said, CliError):
            raise said
        return said

    monkeypatch.setattr(module, "ask_head", ask)
    return cluster_costs(cast(Deployment, SimpleNamespace(made=list)), PRICED)


def test_a_node_price_makes_the_page_ask_the_head_node(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"at": 0, "since": 1_790_000_000, "costs": [COST.__dict__]}
    found = asked(monkeypatch, json.dumps(told))
    assert found is not None
    assert found.idle == [COST]
    assert found.sums[0].startswith("2.05 EUR an hour now; 41.00 EUR since 2026-09-21")
    monkeypatch.setattr(module, "ask_head", pytest.fail)
    assert cluster_costs(cast(Deployment, None), {"cluster": {"nodes": [{"name": "a"}]}}) is None


@pytest.mark.parametrize(
    "said",
    [
        CliError("the head node head does not say"),
        "",
        "[]",
        '{"costs": [{}], "since": 1}',
        json.dumps({"since": 1, "costs": [{**COST.__dict__, "price": "<b>"}]}),
        '{"costs": []}',
    ],
)
def test_without_the_head_nodes_answer_the_page_uses_the_config(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    found = asked(monkeypatch, said)
    assert found is not None
    assert found.sums == ["2.05 EUR an hour for 1 node, by the config of the last up"]
    assert found.idle == []
    assert found.note.startswith("This month's costs and idle nodes are unknown: the head node")
