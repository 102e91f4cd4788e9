"""What a stack costs an hour, and what a change makes of it: amounts, sentences, and prices that nobody gave."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.money.amounts import Prices, amount, change, sentences
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from stacks.config import parse
from tests.unit.configs import RawConfig


def outputs(**prices: float | None) -> dict[str, Any]:
    nodes = [{"name": name, "price_per_hour": price} for name, price in prices.items()]
    return {"cluster": {"currency": "EUR", "nodes": nodes}}


def test_the_cost_of_running_nodes_names_nodes_without_a_price_and_small_amounts_have_more_decimals() -> None:
    prices = Prices.from_outputs(outputs(head=None, a1=2.05, a2=2.05))
    assert prices.summary == "4.10 EUR an hour for 2 of 3 nodes (no price_per_hour: head)"
    assert Prices.from_outputs(outputs(head=None)).summary == ""
    texts = {12.3: "12.30 EUR", 1234.5: "1,234.50 EUR", 0.0045: "0.0045 EUR", 0: "0.00 EUR", 0.1 + 0.2: "0.30 EUR"}
    assert {value: amount(value, "EUR") for value in texts} == texts


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"a1": 2.05, "a2": 2.05}, "+4.10 USD an hour (0.00 USD now, 4.10 USD after): +2 nodes: +4.10 USD."),
        ({"a1": 2, "a2": 2}, {"a1": 2}, "-2.00 USD an hour (4.00 USD now, 2.00 USD after): -1 node: -2.00 USD."),
        (
            {"a1": 2, "b1": 1},
            {"a1": 3, "c1": 1},
            "+1.00 USD an hour (3.00 USD now, 4.00 USD after): +1 node: +1.00 USD, -1 node: -1.00 USD, "
            "1 node dearer: +1.00 USD.",
        ),
        ({"a1": 2}, {"a1": 2}, "2.00 USD an hour, unchanged."),
    ],
)
def test_a_change_shows_its_effect_on_the_cost(before: dict[str, float], after: dict[str, float], words: str) -> None:
    assert list(sentences(Prices("USD", before), Prices("USD", after))) == [words]


def test_nodes_without_a_price_are_counted_and_currencies_never_added() -> None:
    first, second = sentences(Prices("USD", {"a1": 2}), Prices("EUR", {"a1": 2}, ("b1", "b2")))
    assert first == "2.00 USD an hour now, 2.00 EUR an hour after: the currency changes, and amounts are not converted."
    assert second == "Not included: 2 nodes without price_per_hour."


def deployment(config: Any) -> Deployment:
    return cast(Deployment, SimpleNamespace(outputs=dict, config=config))


def test_a_preview_reads_the_prices_of_the_config(lab_config: RawConfig) -> None:
    lab_config["sites"][0]["price_per_hour"] = 1.5
    (first, second) = change(deployment(lambda: parse(lab_config, base_dir=Path())))
    assert first.startswith("+3.00 USD an hour (0.00 USD now, 3.00 USD after): +2 nodes")
    assert second.startswith("Not included: 1 node")


def test_a_config_that_cannot_be_opened_keeps_no_preview_from_its_end() -> None:
    def config() -> None:
        raise CliError("its secrets are kept elsewhere")

    assert change(deployment(config)) == ["The costs are unknown here: its secrets are kept elsewhere"]


def test_the_price_of_a_rented_machine_is_that_of_its_cloud_until_the_config_has_one() -> None:
    before = Prices("USD", {"r1": 1.29, "h1": 2.0})
    after = Prices("USD", {}, ("r1", "h1", "r2")).with_earlier(before, {"r1": {}})
    assert after == Prices("USD", {"r1": 1.29}, ("h1", "r2"))
    assert Prices("EUR", {}, ("r1",)).with_earlier(before, {"r1": {}}).by_node == {}
    assert Prices("USD", {"r1": 5.0}).with_earlier(before, {"r1": {}}).by_node == {"r1": 5.0}
