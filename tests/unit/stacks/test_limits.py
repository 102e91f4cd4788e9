"""The limit `max_price_per_hour` of an elastic pool at clouds whose API says the price."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacks import limits as module
from stacks.config import ConfigError, PoolConfig, parse
from stacks.http_client import ApiError
from stacks.limits import Allowed, may_be_rented
from stacks.read_outputs import StackOutputs
from stacks.rental.cloud import Offer
from stacks.rented import elastic_output
from stacks.sites.rented import prices
from stacks.sites.rented.present import AccessDeniedError
from tests.unit.stacks.test_config_rented import KEY, SECRET, folder, raw

__all__ = ["folder"]
H100, A100 = "gpu_8x_h100_sxm5", "gpu_8x_a100"
EAST, WEST = "us-east-1", "us-west-2"
OFFERS = [Offer(H100, EAST, 23.92), Offer(H100, WEST, 25.0), Offer(A100, "", 14.32, available=False)]


class Account:
    """A cloud that says these prices, or fails."""

    title, currency = "Lambda", "USD"

    def __init__(self, answer: list[Offer] | ApiError) -> None:
        self._answer = answer

    def offers(self) -> list[Offer]:
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


def allowed(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: float,
    answer: list[Offer] | ApiError,
    last: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    **keys: Any,
) -> tuple[PoolConfig, Allowed]:
    """Return a pool of three machines, and those that it may rent."""

    def account(kind: str, url: str, key: str, *, patience: float) -> Any:
        assert (kind, key) == ("lambda", KEY)
        return Account(answer)

    monkeypatch.setattr(module, "cloud_prices", partial(prices.cloud_prices, account=account))
    pools = [{"name": "g", "count": 3, "type": H100, **(pool or {})}]
    elastic = {"cpus": 26, "memory_gb": 221, "max_price_per_hour": limit}
    config = parse({**raw(pools=pools), "elastic": elastic, **keys}, PoolConfig, base_dir=folder, secret_keys=SECRET)
    return config, asyncio.run(may_be_rented(config, StackOutputs(last or {}, frozenset())))


def names(found: Allowed) -> list[str]:
    return [node.name for node in found.nodes]


def test_the_clouds_prices_limit_the_placeholders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(allowed(folder, monkeypatch, 48, OFFERS)[1]) == ["g1", "g2"]
    assert names(allowed(folder, monkeypatch, 47, OFFERS)[1]) == ["g1"]
    config, found = allowed(folder, monkeypatch, 48, OFFERS)
    output = elastic_output(config, "o.p.s", found.nodes, found.prices)
    assert output["places"] == {"g1": f"lambda {EAST}", "g2": f"lambda {EAST}"}
    assert output["limit"] == "at most 2 machines at once (tailrack:elastic.max_price_per_hour: 48 USD)"
    assert output["prices"] == {"g1": 23.92, "g2": 23.92, "g3": 23.92}


def test_the_dearest_of_the_places_to_try_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"try": [{"region": EAST}, {"region": WEST}, {"type": A100}]}
    config, found = allowed(folder, monkeypatch, 50, OFFERS, pool=pool)
    assert (names(found), found.prices["g1"]) == (["g1", "g2"], 25.0)
    assert elastic_output(config, "o", found.nodes, {})["places"]["g1"] == f"lambda {EAST} or {WEST}"
    assert names(allowed(folder, monkeypatch, 49, OFFERS, pool=pool)[1]) == ["g1"]


def test_a_price_in_the_config_wins_and_no_cloud_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = allowed(folder, monkeypatch, 3, ApiError("no call"), pool={"price_per_hour": 1})[1]
    assert names(found) == ["g1", "g2", "g3"]


def test_machines_that_are_rented_stay_when_the_price_rises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = {"rented": {"g2": {"price_per_hour": 20.0, "currency": "USD"}}}
    assert names(allowed(folder, monkeypatch, 44, OFFERS, last)[1]) == ["g1", "g2"]
    assert names(allowed(folder, monkeypatch, 43, OFFERS, last)[1]) == ["g2"]
    assert names(allowed(folder, monkeypatch, 1, OFFERS, last)[1]) == ["g2"], "so that it can be returned"


def test_a_cloud_that_does_not_answer_keeps_its_last_prices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    down = ApiError("no answer")
    last = {"elastic": {"prices": {"g1": 20.0, "g2": 20.0, "g3": 20.0}}}
    assert names(allowed(folder, monkeypatch, 40, down, last)[1]) == ["g1", "g2"]
    with pytest.raises(ConfigError, match="is set, and site burst: Lambda does not say its prices: no answer; run"):
        allowed(folder, monkeypatch, 40, down)


@pytest.mark.parametrize(
    ("limit", "answer", "keys", "problem"),
    [
        (23, OFFERS, {}, r"23 is less than the cloud's price of one machine \(23.92 USD\); jobs could rent nothing"),
        (50, OFFERS[2:], {}, "is set, and the cloud says no price in USD for node g1; the limit could not be kept"),
        (50, OFFERS, {"currency": "EUR"}, "is set, and the cloud says no price in EUR for node g1"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_before_anything_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: float, answer: list[Offer], keys: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=f"tailrack:elastic.max_price_per_hour: {problem}"):
        allowed(folder, monkeypatch, limit, answer, **keys)


def test_a_rejected_key_names_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDeniedError, match="does not accept the API key") as refused:
        allowed(folder, monkeypatch, 50, ApiError("invalid", status=401))
    assert "pulumi config set --path --secret tailrack:api_keys.lambda" in str(refused.value)
