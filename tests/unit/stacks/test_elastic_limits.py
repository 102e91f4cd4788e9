"""The limit `max_price_per_hour` of an elastic pool at clouds whose API says the price."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacks import elastic_limits as module
from stacks.config import ConfigError, PoolConfig, parse
from stacks.elastic_limits import Allowed, may_be_rented
from stacks.http_client import ApiError
from stacks.read_outputs import StackOutputs
from stacks.rental.cloud import Offer
from stacks.rental_requests import elastic_output
from stacks.sites.rented import missing_prices
from stacks.sites.rented.present import AccessDeniedError
from tests.unit.stacks.test_config_rented import KEY, SECRET, raw

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


Allow = Callable[..., tuple[PoolConfig, Allowed]]


@pytest.fixture
def allowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Allow:
    """Return a function that gives a pool of three machines, and those that it may rent."""

    def ask(limit: float, answer: list[Offer] | ApiError, last: Any = None, pool: Any = None, **keys: Any) -> Any:
        def account(kind: str, url: str, key: str, *, patience: float) -> Any:
            assert (kind, key) == ("lambda", KEY)
            return Account(answer)

        monkeypatch.setattr(module, "cloud_prices", partial(missing_prices.cloud_prices, account=account))
        pools = [{"name": "g", "count": 3, "type": H100, **(pool or {})}]
        elastic = {"cpus": 26, "memory_gb": 221, "max_price_per_hour": limit}
        whole = {**raw(pools=pools), "elastic": elastic, **keys}
        config = parse(whole, PoolConfig, base_dir=folder, secret_keys=SECRET)
        return config, asyncio.run(may_be_rented(config, StackOutputs(last or {}, frozenset())))

    return ask


def names(found: Allowed) -> list[str]:
    return [node.name for node in found.nodes]


def test_the_clouds_prices_limit_the_placeholders(allowed: Allow) -> None:
    assert names(allowed(48, OFFERS)[1]) == ["g1", "g2"]
    assert names(allowed(47, OFFERS)[1]) == ["g1"]
    config, found = allowed(48, OFFERS)
    output = elastic_output(config, "o.p.s", found.nodes, found.prices)
    assert output["places"] == {"g1": f"lambda {EAST}", "g2": f"lambda {EAST}"}
    assert output["limit"] == "at most 2 machines at once (tailrack:elastic.max_price_per_hour: 48 USD)"
    assert output["prices"] == {"g1": 23.92, "g2": 23.92, "g3": 23.92}


def test_the_dearest_of_the_places_to_try_counts(allowed: Allow) -> None:
    pool = {"try": [{"region": EAST}, {"region": WEST}, {"type": A100}]}
    config, found = allowed(50, OFFERS, pool=pool)
    assert (names(found), found.prices["g1"]) == (["g1", "g2"], 25.0)
    assert elastic_output(config, "o", found.nodes, {})["places"]["g1"] == f"lambda {EAST} or {WEST}"
    assert names(allowed(49, OFFERS, pool=pool)[1]) == ["g1"]


def test_machines_that_are_rented_stay_when_the_price_rises(allowed: Allow) -> None:
    last = {"rented": {"g2": {"price_per_hour": 20.0, "currency": "USD"}}}
    assert names(allowed(44, OFFERS, last)[1]) == ["g1", "g2"]
    assert names(allowed(43, OFFERS, last)[1]) == ["g2"]
    assert names(allowed(1, OFFERS, last)[1]) == ["g2"], "so that it can be returned"


def test_a_cloud_that_does_not_answer_keeps_its_last_prices(allowed: Allow) -> None:
    down = ApiError("no answer")
    last = {"elastic": {"prices": {"g1": 20.0, "g2": 20.0, "g3": 20.0}}}
    assert names(allowed(40, down, last)[1]) == ["g1", "g2"]
    with pytest.raises(ConfigError, match="is set, and site burst: Lambda does not say its prices: no answer; run"):
        allowed(40, down)


def test_a_limit_that_cannot_be_kept_is_refused(allowed: Allow) -> None:
    for limit, answer, keys, problem in (
        (23, OFFERS, {}, r"23 is less than the cloud's price of one machine \(23.92 USD\); jobs could rent nothing"),
        (50, OFFERS[2:], {}, "is set, and the cloud says no price in USD for node g1; the limit could not be kept"),
        (50, OFFERS, {"currency": "EUR"}, "is set, and the cloud says no price in EUR for node g1"),
    ):
        with pytest.raises(ConfigError, match=f"tailrack:elastic.max_price_per_hour: {problem}"):
            allowed(limit, answer, **keys)


def test_a_rejected_key_names_the_command_and_a_price_in_the_config_needs_no_cloud(allowed: Allow) -> None:
    found = allowed(3, ApiError("no call"), pool={"price_per_hour": 1})[1]
    assert names(found) == ["g1", "g2", "g3"]
    with pytest.raises(AccessDeniedError, match="does not accept the API key") as refused:
        allowed(50, ApiError("invalid", status=401))
    assert "pulumi config set --path --secret tailrack:api_keys.lambda" in str(refused.value)
