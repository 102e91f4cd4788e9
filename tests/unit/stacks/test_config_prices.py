"""Prices in the config: whose they are, and those that are none."""

import copy
from pathlib import Path
from typing import Any

import pytest

from stacks.config import PoolConfig, parse
from tests.unit.configs import RawConfig, refused

POOL: RawConfig = {
    "kind": "pool",
    "cluster": "dev",
    "sites": [{"name": "cloud-c", "kind": "lab", "pools": [{"name": "c", "count": 2, "price_per_hour": 2.05}]}],
}


def problems(*raw: Any, base_dir: Path = Path(), **how: Any) -> list[str]:
    return [str(problem) for problem in refused(parse, *raw, base_dir=base_dir, **how).problems]


def test_a_pools_price_comes_before_its_sites(lab_config: RawConfig) -> None:
    lab_config["sites"][0] |= {"price_per_hour": 0.1}
    lab_config["sites"][0]["pools"][0]["price_per_hour"] = 2.5
    prices = {node.name: node.price_per_hour for node in parse(lab_config, base_dir=Path()).nodes()}
    assert prices == {"head": 0.1, "a1": 2.5, "b1": None}


@pytest.mark.parametrize("price", [-1, "cheap"])
def test_a_bad_price_is_refused(lab_config: RawConfig, hosts_config: RawConfig, key_folder: Path, price: Any) -> None:
    lab_config["sites"][1]["price_per_hour"] = price
    (problem,) = problems(lab_config)
    assert problem.startswith("tailrack:sites[1].price_per_hour: ")
    hosts_config["sites"][0]["hosts"][0]["price_per_hour"] = price
    (found,) = problems(hosts_config, base_dir=key_folder, secret_keys=frozenset({"tailnet"}))
    assert found.startswith("tailrack:sites[0].hosts[0].price_per_hour: ")
    assert "is not an amount from 0" in found


def test_a_price_that_no_machine_has_in_its_currency_is_refused(lab_config: RawConfig) -> None:
    lab_config["sites"][0]["price_per_hour"] = 2490
    (problem,) = problems(lab_config)
    assert "sites[0].price_per_hour: 2490.0 is more than any machine costs in USD per hour; " in problem
    yen = {**copy.deepcopy(lab_config), "currency": "JPY"}
    assert parse(yen, base_dir=Path()).currency == "JPY"


@pytest.mark.parametrize(
    ("currency", "fix"), [("usd", "did you mean 'USD'?"), ("EURO", "'EUR'"), ("XXX", "write"), ("dollars", "write")]
)
def test_the_config_rejects_an_invalid_currency(lab_config: RawConfig, currency: str, fix: str) -> None:
    (problem,) = problems({**lab_config, "currency": currency})
    assert problem.startswith(f"tailrack:currency: {currency!r} is not a currency's code in ISO 4217; ")
    assert fix in problem


def test_a_pool_says_when_it_is_removed_but_not_while_it_is_new(lab_config: RawConfig) -> None:
    assert parse({**POOL, "idle_limit_minutes": 30}, PoolConfig, base_dir=Path()).idle_limit_minutes == 30
    for minutes in (0, 4, -30, "soon", 30.5, True, 100_000):
        (problem,) = problems({**POOL, "idle_limit_minutes": minutes}, PoolConfig)
        assert problem.startswith("tailrack:idle_limit_minutes: ")
        assert "a whole number from 5 to 43200" in problem
    (problem,) = problems({**lab_config, "idle_limit_minutes": 30})
    assert "it belongs to a stack of kind pool" in problem
