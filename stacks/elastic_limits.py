"""The nodes that an elastic pool may rent at once, by the prices in the config and those of its clouds."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from components.settings.problems import ROOT, Problem
from stacks.config import ConfigError, PoolConfig
from stacks.config.model import placeholders
from stacks.read_outputs import StackOutputs
from stacks.sites.kind import NodeSpec
from stacks.sites.rented.missing_prices import NoPricesError, cloud_prices
from stacks.sites.rented.model import RentedNode, RentedSite, api_keys

_LIMIT = f"{ROOT}elastic.max_price_per_hour"


@dataclass(frozen=True)
class Allowed:
    """The nodes that may all be rented at once, and the prices of clouds for those without one in the config."""

    nodes: Sequence[NodeSpec]
    prices: Mapping[str, float] = field(default_factory=dict)


async def may_be_rented(config: PoolConfig, last_run: StackOutputs) -> Allowed:
    """Return the placeholders of an elastic pool, else all nodes. Asks a cloud only if the limit needs its prices.

    Raises ConfigError if a price is unknown, or if one machine alone exceeds the limit; AccessDeniedError.
    """
    elastic, nodes = config.elastic, config.all_nodes()
    if elastic is None or elastic.max_price_per_hour is None:
        return Allowed(config.nodes())
    unpriced = [node for node in nodes if node.price_per_hour is None and isinstance(node, RentedNode)]
    if not unpriced:
        return Allowed(config.nodes())
    sites = [site for site in config.sites if isinstance(site, RentedSite)]
    last = (last_run.value("elastic") or {}).get("prices", {})
    keys = api_keys(config.api_keys)
    try:
        prices = await asyncio.to_thread(cloud_prices, sites, unpriced, keys, config.currency, last)
    except NoPricesError as error:
        raise _refused(f"is set, and {error}; run the same command again later, or write price_per_hour") from None
    rented = _rented_prices(last_run, config.currency)
    if unknown := [node.name for node in unpriced if node.name not in {**prices, **rented}]:
        raise _refused(
            f"is set, and the cloud says no price in {config.currency} for node {unknown[0]}; the limit could not be "
            "kept; write price_per_hour at its site, or correct its type"
        )
    allowed = placeholders(elastic, nodes, {**prices, **rented}, rented)
    if not allowed:
        price = min(prices.values())
        raise _refused(
            f"{elastic.max_price_per_hour:g} is less than the cloud's price of one machine ({price:g} "
            f"{config.currency}); jobs could rent nothing; write a higher limit"
        )
    return Allowed(allowed, prices)


def _refused(problem: str) -> ConfigError:
    return ConfigError([Problem(_LIMIT, problem)])


def _rented_prices(last_run: StackOutputs, currency: str) -> dict[str, float]:
    """Return the prices of the machines that the last run left."""
    rented = last_run.value("rented") or {}
    return {
        node: facts["price_per_hour"]
        for node, facts in rented.items()
        if facts.get("currency") == currency and isinstance(facts.get("price_per_hour"), int | float)
    }
