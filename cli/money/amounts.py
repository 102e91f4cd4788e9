"""Amounts of money as text, and hourly prices of nodes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cli.output.terminal import one_line
from components.settings.money import CURRENCIES, DEFAULT_CURRENCY
from stacks.config import PoolConfig, StackConfig


def amount(value: float, currency: str, *, signed: bool = False) -> str:
    """Return `12.30 USD` or `+4.10 USD`; small amounts have four decimals, as in `0.0045 USD`."""
    decimals = 4 if 0 < abs(value) < 0.1 else 2
    return f"{value:{'+' if signed else ''},.{decimals}f} {currency}"


@dataclass(frozen=True)
class Prices:
    """Hourly prices of nodes.

    by_node    amount by node, for nodes with a price
    unpriced   nodes without a price
    """

    currency: str
    by_node: Mapping[str, float]
    unpriced: tuple[str, ...] = ()

    @classmethod
    def from_outputs(cls, outputs: Mapping[str, Any]) -> Prices:
        """Return the prices in the last `up`'s outputs; an invalid price counts as none."""
        cluster = outputs.get("cluster") or {}
        nodes = {str(node["name"]): node.get("price_per_hour") for node in cluster.get("nodes", ())}
        by_node = {name: float(price) for name, price in nodes.items() if _is_price(price)}
        currency = cluster.get("currency")
        currency_ = currency if isinstance(currency, str) and currency in CURRENCIES else DEFAULT_CURRENCY
        return cls(currency_, by_node, tuple(name for name in nodes if name not in by_node))

    @classmethod
    def configured(cls, config: StackConfig | PoolConfig) -> Prices:
        """Return the prices in a config."""
        prices = {node.name: node.price_per_hour for node in config.nodes()}
        by_node = {name: price for name, price in prices.items() if price is not None}
        return cls(config.currency, by_node, tuple(name for name in prices if name not in by_node))

    def with_earlier(self, before: Prices, nodes: Collection[str]) -> Prices:
        """Return these prices with earlier ones of nodes without a price here: those of a cloud that rents the machine.

        nodes   those whose earlier price counts
        """
        if self.currency != before.currency:
            return self
        known = {name: before.by_node[name] for name in self.unpriced if name in nodes and name in before.by_node}
        by_node = {**self.by_node, **known}
        return Prices(self.currency, by_node, tuple(name for name in self.unpriced if name not in known))

    @property
    def total(self) -> float:
        return math.fsum(self.by_node.values())

    @property
    def summary(self) -> str:
        """Return `12.30 USD an hour for 3 of 4 nodes (no price: head)`; empty if no node has a price."""
        if not self.by_node:
            return ""
        count = len(self.by_node) + len(self.unpriced)
        nodes = f"{len(self.by_node)} of {count} nodes" if self.unpriced else f"{count} node{'' if count == 1 else 's'}"
        return f"{amount(self.total, self.currency)} an hour for {nodes}{_named(self.unpriced)}"


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _named(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    more = ", ..." if len(names) > 5 else ""
    return f" (no price_per_hour: {', '.join(map(one_line, names[:5]))}{more})"
