"""Amounts of money as text, and hourly prices of nodes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from cli.head.answer import as_root, ask_head
from cli.output.terminal import one_line
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import nodes_of
from components.roles.commands.tailrack.costs import ESTIMATE, Cost, as_rows, longest_idle, sums
from components.roles.commands.tailrack.host import COMMAND
from components.roles.commands.tailrack.idle import Use
from components.settings.money import CURRENCIES, DEFAULT_CURRENCY
from components.validation.untrusted import read
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


_NODE = re.compile(r"[a-z][a-z0-9-]{0,62}")


def decide(deployment: Deployment) -> Use:
    """Return whether to destroy a stack now, and the reason, which follows `Keeping stack x: `.

    It asks the cluster, which drains the pool's nodes if they are unused. Raises CliError if the use is unknown; then
    nothing is destroyed.
    """
    config = deployment.config()
    if not isinstance(config, PoolConfig):
        return Use(False, "it is a cluster, and only pools are destroyed when idle")
    if config.idle_limit_minutes is None:
        return Use(False, "its config has no idle_limit_minutes")
    cluster = deployment.outputs().get("cluster")
    resources = deployment.made()
    if not cluster:
        if resources:
            raise CliError(
                "the last run of this stack did not finish, so it is unknown whether its machines are used: "
                f"run {deployment.make('up')} or {deployment.make('down')}"
            )
        return Use(False, "it has no resources")
    # Include the nodes of a later run that did not finish.
    names = sorted({str(node["name"]) for node in cluster.get("nodes", ())} | {*nodes_of(resources)})
    words = ["idle", "--json", "--take-out", "--minutes", str(config.idle_limit_minutes)]
    # Only root may drain nodes.
    command = as_root(COMMAND, *words, *filter(_NODE.fullmatch, names))
    return _read_use(ask_head(deployment, resources, str(cluster.get("head", "")), command))


def _read_use(answer: str) -> Use:
    """Return the output of `tailrack idle --json`; CliError for any other output."""
    try:
        use = read(Use, json.loads(answer))
    except ValueError:
        problem = one_line(answer[-200:]) or "nothing"
        raise CliError(f"the head node did not report whether the pool is in use: {problem}") from None
    return Use(use.unused, one_line(use.why))


def change(deployment: Deployment) -> list[str]:
    """Return sentences on the change from the last `up` to the config, or one with the reason if that is unknown."""
    try:
        outputs = deployment.outputs()
        before, rented = Prices.from_outputs(outputs), outputs.get("rented") or {}
        return list(sentences(before, Prices.configured(deployment.config()).with_earlier(before, rented)))
    except CliError as error:
        # An invalid config has failed the preview already; only secrets that the CLI alone can decrypt remain.
        return [f"The costs are unknown here: {error}"]


def sentences(before: Prices, after: Prices) -> Iterator[str]:
    """Give sentences on the hourly costs now and after the change, and on the difference; nothing without a price.

    before   prices of the last `up`
    after    prices of the config
    """
    if not before.by_node and not after.by_node:
        return
    old, new = amount(before.total, before.currency), amount(after.total, after.currency)
    if before.currency != after.currency and before.by_node and after.by_node:
        yield f"{old} an hour now, {new} an hour after: the currency changes, and amounts are not converted."
    elif before.total == after.total and before.by_node.keys() == after.by_node.keys():
        yield f"{old} an hour, unchanged."
    else:
        parts = list(_parts(before, after))
        difference = amount(after.total - before.total, after.currency, signed=True)
        reasons = f": {', '.join(parts)}" if parts else ""
        yield f"{difference} an hour ({old} now, {new} after){reasons}."
    if after.unpriced:
        yield f"Not included: {_count(len(after.unpriced))} without price_per_hour."


def _parts(before: Prices, after: Prices) -> Iterator[str]:
    """Give `+2 nodes: +4.10 USD`, `-1 node: ...`, `2 nodes dearer: ...`."""
    # An old node that gets a price is not an added node.
    old_nodes, new_nodes = {*before.by_node, *before.unpriced}, {*after.by_node, *after.unpriced}
    added = [after.by_node[name] for name in after.by_node if name not in old_nodes]
    removed = [before.by_node[name] for name in before.by_node if name not in new_nodes]
    kept = old_nodes & new_nodes
    differences = [after.by_node.get(name, 0.0) - before.by_node.get(name, 0.0) for name in kept]
    changed = [step for step in differences if step]
    if added:
        yield f"+{_count(len(added))}: {amount(sum(added), after.currency, signed=True)}"
    if removed:
        yield f"-{_count(len(removed))}: {amount(-sum(removed), before.currency, signed=True)}"
    for dearer, group in groupby(sorted(changed), lambda step: step > 0):
        steps = list(group)
        kind = "dearer" if dearer else "cheaper"
        yield f"{_count(len(steps))} {kind}: {amount(sum(steps), after.currency, signed=True)}"


def _count(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


_COSTS = "/usr/local/bin/tailrack costs --json"


@dataclass(frozen=True)
class ClusterCosts:
    """Sentences on sums, a note on all of it, and idle nodes, the longest idle first."""

    sums: list[str]
    note: str
    idle: list[Cost] = field(default_factory=list)


def cluster_costs(deployment: Deployment, outputs: Mapping[str, Any]) -> ClusterCosts | None:
    """Return the costs from the head node; None if no node of the stack has a price."""
    prices = Prices.from_outputs(outputs)
    if not prices.by_node:
        return None
    try:
        answer = json.loads(ask_head(deployment, deployment.made(), str(outputs["cluster"].get("head", "")), _COSTS))
        rows = as_rows(answer)
        return ClusterCosts(sums(rows, int(answer["since"])), ESTIMATE, longest_idle(rows))
    except CliError as error:
        reason = one_line(str(error))
    except (ValueError, KeyError, TypeError):
        reason = "the head node's answer cannot be read"
    return ClusterCosts(
        [f"{prices.summary}, by the config of the last up"], f"This month's costs and idle nodes are unknown: {reason}."
    )
