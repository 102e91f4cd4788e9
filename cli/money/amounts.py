"""Amounts of money as people read them, and what nodes cost an hour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.output.terminal import one_line
from components.settings.money import CURRENCIES, DEFAULT_CURRENCY
from stacks.config import PoolConfig, StackConfig


def amount(value: float, currency: str, *, signed: bool = False) -> str:
    """`12.30 USD`, `+4.10 USD`; a tenth of a cent is still told, as `0.0045 USD`."""
    decimals = 4 if 0 < abs(value) < 0.1 else 2
    return f"{value:{'+' if signed else ''},.{decimals}f} {currency}"


@dataclass(frozen=True)
class Prices:
    """What nodes cost an hour.

    of         amount by node, of those that have a price
    unpriced   nodes without one
    """

    currency: str
    of: Mapping[str, float]
    unpriced: tuple[str, ...] = ()

    @classmethod
    def made(cls, outputs: Mapping[str, Any]) -> Prices:
        """Those of the last `up`; of one of an earlier version, none. What is no price is none."""
        cluster = outputs.get("cluster") or {}
        nodes = {str(node["name"]): node.get("price_per_hour") for node in cluster.get("nodes", ())}
        of = {name: float(price) for name, price in nodes.items() if _is_price(price)}
        currency = cluster.get("currency")
        known = currency if isinstance(currency, str) and currency in CURRENCIES else DEFAULT_CURRENCY
        return cls(known, of, tuple(name for name in nodes if name not in of))

    @classmethod
    def configured(cls, config: StackConfig | PoolConfig) -> Prices:
        """Those of a config."""
        prices = {node.name: node.price_per_hour for node in config.nodes()}
        of = {name: price for name, price in prices.items() if price is not None}
        return cls(config.currency, of, tuple(name for name in prices if name not in of))

    @property
    def total(self) -> float:
        """Of all nodes together."""
        return math.fsum(self.of.values())

    @property
    def words(self) -> str:
        """`12.30 USD an hour for 3 of 4 nodes (no price: head)`; empty where no node has a price."""
        if not self.of:
            return ""
        count = len(self.of) + len(self.unpriced)
        whose = f"{len(self.of)} of {count} nodes" if self.unpriced else f"{count} node{'' if count == 1 else 's'}"
        return f"{amount(self.total, self.currency)} an hour for {whose}{_named(self.unpriced)}"


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _named(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    more = ", ..." if len(names) > 5 else ""
    return f" (no price_per_hour: {', '.join(map(one_line, names[:5]))}{more})"
