"""The machines that a run keeps, rents or does without, as the commands say in the environment."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from stacks.config import PoolConfig
from stacks.read_outputs import StackOutputs
from stacks.sites.kind import NodeSpec

# Set by `make elastic` and the other commands: names, separated by commas. With plain Pulumi it is absent.
RENTED = "TAILRACK_RENTED"
# Set by `make up` for its second run: nodes of sites with `fewer: warn` for which the first run got no machine.
LEFT_OUT = "TAILRACK_LEFT_OUT"


def rented(placeholders: Sequence[NodeSpec], last_run: StackOutputs) -> list[NodeSpec]:
    """Return the placeholders that have, or get, a machine. Without the variable, those that the last run left."""
    text = os.environ.get(RENTED)
    if text is None:
        names = {node["name"] for node in (last_run.value("cluster") or {}).get("nodes", ())}
    else:
        names = set(text.split(","))
    return [node for node in placeholders if node.name in names]


def left_out() -> set[str]:
    """Return the nodes that this run does without."""
    return set(os.environ.get(LEFT_OUT, "").split(",")) - {""}


def elastic_output(
    config: PoolConfig, owner: str, nodes: Sequence[NodeSpec], prices: Mapping[str, float]
) -> dict[str, Any]:
    """Return what `make elastic` needs of the last run.

    owner    the pool's name on the head node
    nodes    the placeholders
    prices   the clouds' prices, with which the next run counts if a cloud does not answer
    """
    kinds = {site.name: site.kind for site in config.sites}
    return {
        "pool": owner,
        "places": {node.name: node.place(kinds[node.site]) for node in nodes},
        "limit": _limit(config, len(nodes)),
        "kept": [node.name for node in nodes[: config.elastic.min]] if config.elastic else [],
        **({"replace_sick": True} if config.elastic and config.elastic.replace_sick else {}),
        **({"prices": dict(prices)} if prices else {}),
    }


def _limit(config: PoolConfig, machines: int) -> str:
    """Return the limit of machines at once, with the key that sets it."""
    elastic, counted = config.elastic, f"at most {machines} machine{'' if machines == 1 else 's'} at once"
    everything = len(config.all_nodes())
    if elastic is None or machines == everything:
        return f"{counted} (all of its sites)"
    if elastic.max == machines:
        return f"{counted} (tailrack:elastic.max)"
    return f"{counted} (tailrack:elastic.max_price_per_hour: {elastic.max_price_per_hour:g} {config.currency})"
