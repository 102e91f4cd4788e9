"""The monthly budget: what counts, and what monitoring and the head node get."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.roles.monitoring.budget import spending as books
from components.roles.monitoring.budget.spending import Budget, Spending, Stay, budget_line, read_budget, spending
from components.roles.monitoring.monitoring.slurm_figures import budget_figures
from components.roles.order import budget as role
from components.roles.order import roles
from components.roles.role import template
from stacks.config import parse
from stacks.config.model import StackConfig
from tests.unit.configs import LAB

# 2026-11-11 00:00 UTC: ten days into the month.
NOW = 1_794_355_200
BEGIN = NOW - 10 * 86400
BUDGET_2000 = Budget(2000, "EUR", 80)


def book(price: float, *, begin: int = BEGIN, currency: str = "EUR") -> Mapping[str, Sequence[Stay]]:
    """The ledger of one node that is in the cluster."""
    return {"a1": [Stay(begin, None, price, currency)]}


def seen(amount: float, budget: Budget = BUDGET_2000) -> Spending:
    return spending(budget, book(amount / 240), NOW)


def config(**sections: Any) -> StackConfig:
    return parse({**LAB, **sections}, base_dir=Path())


# What counts.


def test_hours_of_machines_that_are_up_count_from_the_first_of_the_month_in_utc() -> None:
    whole = spending(BUDGET_2000, book(2.0, begin=BEGIN - 30 * 86400), NOW)
    assert (whole.month, whole.amount, whole.hourly, whole.percent) == ("2026-11", 480.0, 2.0, 24)
    first_second = spending(BUDGET_2000, book(2.0, begin=0), BEGIN)
    assert (first_second.month, first_second.amount) == ("2026-11", 0.0)
    last_second = spending(BUDGET_2000, book(3.0, begin=0), BEGIN - 1)
    assert last_second.month == "2026-10"
    assert last_second.percent > 100


def test_amounts_in_another_currency_are_named_and_do_not_count() -> None:
    both = {**book(1.0), **{"p1": [Stay(BEGIN, NOW, 5.0, "USD"), Stay(NOW, None)]}}
    result = spending(BUDGET_2000, both, NOW)
    assert result.amount == 240.0
    assert budget_line(result) == "Budget: 240.00 of 2,000.00 EUR spent in 2026-11 (12 %), without 1,200.00 USD."


def test_without_a_budget_there_is_none_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(books, "BUDGET", str(tmp_path / "budget"))
    assert read_budget() is None
    made = role(config(budget={"per_month": 2000}, currency="EUR"))
    assert made
    (tmp_path / "budget").write_text(made.files["services"][0].text, encoding="utf-8")
    assert read_budget() == Budget(2000, "EUR", 80)


# Monitoring.


def test_monitoring_shows_the_spent_share_and_the_warning_share() -> None:
    assert budget_figures(None) == []
    assert [(metric.name, metric.samples) for metric in budget_figures(seen(1500))] == [
        ("tailrack_budget_spent_ratio", [({}, 0.75)]),
        ("tailrack_budget_tell_ratio", [({}, 0.8)]),
    ]


def test_alertmanager_sends_an_alert_about_the_budget_once_a_month() -> None:
    hook = {"kind": "webhook", "url": "https://example.org/x"}
    sections = {**LAB, "monitoring": {"receivers": [hook]}}
    texts: list[tuple[str, str]] = []
    for more in ({}, {"budget": {"per_month": 5}}):
        settings = parse({**sections, **more}, base_dir=Path(), secret_keys=frozenset({"monitoring"}))
        made = next(one for one in roles(settings) if one.name == "monitoring")
        texts.append((str(made.values["monitoring_alertmanager"]), made.texts["monitoring_alertmanager_unit"]))
    (plain_config, plain_unit), (text, unit) = texts
    assert "routes" not in plain_config
    assert "retention" not in plain_unit
    (route,) = json.loads(text)["route"]["routes"]
    alerts = route["matchers"][0].removeprefix('alertname=~"').removesuffix('"').split("|")
    assert all(f"- alert: {alert}\n" in template("monitoring", "alerts.yml") for alert in alerts)
    assert int(route["repeat_interval"].removesuffix("h")) > 31 * 24
    assert f" --data.retention={route['repeat_interval']} " in unit
