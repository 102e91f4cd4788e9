"""The change of a stack's hourly costs in a preview."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from cli.money.amounts import Prices, amount
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError


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
