"""The rented part of a stack: the look at its clouds before any resource, and the output `rented`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi

from components.host import Host
from components.steps.values import OutputParts, output_from, resolve
from stacks.config import PoolConfig, StackConfig
from stacks.read_outputs import StackOutputs
from stacks.rental_requests import left_out
from stacks.sites import KINDS
from stacks.sites.kind import NodeSpec, Site
from stacks.sites.rented.model import WARN, RentedNode, RentedSite, api_keys
from stacks.sites.rented.present import AccessDeniedError, Rental, look


@dataclass(frozen=True)
class Rentals:
    """The sites and nodes of a stack without those for which a cloud has no machine, and what each kind needs.

    connections   values that the config does not have, by node and field of its Connection
    """

    sites: Sequence[Site]
    nodes: Sequence[NodeSpec]
    by_kind: Mapping[str, Rental]
    connections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def connected(self, hosts: Mapping[str, Host]) -> dict[str, Host]:
        """Return the hosts with these values."""

        def one(host: Host) -> Host:
            values = self.connections.get(host.name)
            return replace(host, connection=replace(host.connection, **values)) if values and host.connection else host

        return {name: one(host) for name, host in hosts.items()}


async def rentals(
    config: StackConfig | PoolConfig, stack: str, last_run: StackOutputs, nodes: Sequence[NodeSpec] | None = None
) -> Rentals:
    """Ask the clouds of the stack's sites. Raises RunError if one rejects the API key, or if no node is left.

    nodes   those of this run, for an elastic pool, which may have none
    """
    elastic = isinstance(config, PoolConfig) and config.elastic is not None
    nodes = config.nodes() if nodes is None else nodes
    sites = [site for site in config.sites if KINDS[site.kind].rents and isinstance(site, RentedSite)]
    if not sites:
        return Rentals(config.sites, nodes, {})
    keys = api_keys(config.api_keys)
    fewer = {site.name for site in sites if site.fewer == WARN}
    without = {node.name for node in nodes if node.site in fewer and not node.is_head} & left_out()
    nodes = [node for node in nodes if node.name not in without]
    rented = [node for node in nodes if isinstance(node, RentedNode)]
    try:
        dry_run, last = pulumi.runtime.is_dry_run(), last_run.value("rented")
        present = await asyncio.to_thread(look, sites, rented, keys, stack, last, dry_run=dry_run)
    except AccessDeniedError as error:
        raise pulumi.RunError(str(error)) from None
    for message in present.messages:
        pulumi.log.warn(message)
    for sentence in present.prices:
        pulumi.log.info(sentence)
    kept = [node for node in nodes if node.name not in present.left_out or node.is_head]
    if not elastic and not any(node.compute for node in kept):
        raise pulumi.RunError("no cloud has a machine for any node now; nothing was changed; run `make up` again later")
    places = {site.name for site in sites} if elastic else {node.site for node in kept}
    kinds: list[str] = [site.kind for site in sites]
    by_kind = {kind: Rental(keys[kind], present.lost, config.currency, present.moved) for kind in kinds}
    return Rentals([site for site in config.sites if site.name in places or site not in sites], kept, by_kind)


def rented_output(facts: Mapping[str, pulumi.Output[dict[str, Any]]], last_run: StackOutputs) -> dict[str, Any]:
    """Return the output `rented`: facts by node; nothing if no node rents.

    The next run compares it with the clouds' machines. So a machine that failed must not hide the others, and a node
    that got no other machine for its lost one keeps its old facts: the next run sees the loss again.
    """
    if not facts:
        return {}
    last = last_run.value("rented")
    before: dict[str, Any] = last if isinstance(last, dict) else {}

    async def wait() -> OutputParts:
        resolved = [await resolve({node: output}) for node, output in facts.items()]
        values = {
            node: value if one.known else before[node]
            for one in resolved
            for node, value in one.values.items()
            if one.known or node in before
        }
        resources = set[pulumi.Resource]().union(*(one.resources for one in resolved))
        return resources, values, True, False

    return {"rented": output_from(wait())}
