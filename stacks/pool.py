"""The stack kind `pool`: machines that join the running cluster of another stack, and the stack's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.cluster.head_link import HeadLink
from components.cluster.pool import Pool
from components.cluster.warnings import warnings_about_pool
from components.roles.network.tailnet.policy import Pods, ports
from components.roles.network.tailnet.settings import TAILSCALE
from components.roles.order import roles
from components.settings.problems import ROOT, Problem
from stacks.cluster_output import cluster_output, full_name
from stacks.config import ConfigError, PoolConfig
from stacks.elastic_limits import Allowed, may_be_rented
from stacks.joining import is_measured, peer, problems
from stacks.look_at_clouds import Rentals, rentals, rented_output
from stacks.outputs import headline
from stacks.read_outputs import StackOutputs, read_outputs
from stacks.release import RELEASE
from stacks.rental_requests import elastic_output, rented
from stacks.sites.machines import host_of, machines
from stacks.sites.rented.present import AccessDeniedError
from stacks.tailnet.access import stack_tailnet, tailnet_kind
from stacks.tailnet.pods_policy import check_pods_policy


async def pool_stack(config: PoolConfig, stack: str) -> PoolStack:
    """Return the resources and outputs of a pool. Raises RunError, before any resource, if the pool cannot join."""
    last_run = await read_outputs(full_name(stack))
    try:
        cluster_outputs = await read_outputs(config.cluster)
    except pulumi.RunError as error:
        advice = "no node could join; write the name of the cluster's stack, or bring it up first"
        raise pulumi.RunError(str(ConfigError([Problem(f"{ROOT}cluster", f"{error}; {advice}")]))) from None
    cluster, link = cluster_outputs.value("cluster"), cluster_outputs.value("head_link")
    settings = HeadLink.settings_of(link) if link else None
    reasons = list(problems(config, stack, cluster, link, settings))
    if reasons or settings is None:
        raise pulumi.RunError(str(ConfigError(reasons)))
    try:
        allowed = await may_be_rented(config, last_run)
    except (ConfigError, AccessDeniedError) as error:
        raise pulumi.RunError(str(error)) from None
    nodes = config.nodes() if config.elastic is None else rented(allowed.nodes, last_run)
    pods = Pods.of(nodes)
    if pods and tailnet_kind(config.tailnet, config.sites) == TAILSCALE:
        await check_pods_policy(config.tailnet, settings.tailnet.tag, ports(roles(config.joined(settings))), pods)
    available = await rentals(config, stack, last_run, nodes)
    return PoolStack(config, stack, last_run, cluster, HeadLink.from_outputs(link, settings), available, allowed)


class PoolStack:
    """A pool's stack. `outputs` are those of `pulumi stack output`: like a cluster's, for the pool's nodes.

    last_run   the stack's own outputs before this run
    cluster    output of the cluster's stack, checked with `problems`
    head       the cluster's head node
    available  sites and nodes that clouds can have now
    allowed    placeholders, if the pool is elastic
    """

    def __init__(
        self,
        config: PoolConfig,
        stack: str,
        last_run: StackOutputs,
        cluster: Mapping[str, Any],
        head: HeadLink,
        available: Rentals,
        allowed: Allowed,
    ) -> None:
        settings, owner = head.settings, full_name(stack).replace("/", ".")
        nodes, sites = available.nodes, available.sites
        created = machines(sites, nodes, stack, config.cluster_stack, available.by_kind)
        tailnet = stack_tailnet(
            config.tailnet,
            roles(config.joined(settings)),
            sites,
            created.control_url,
            stack=stack,
            name=stack,
            tag=settings.tailnet.tag,
            ephemeral=True,
            pods=Pods.of(nodes),
        )
        hosts = available.connected(tailnet.hosts(created.hosts))
        self.pool = Pool(
            stack,
            config,
            owner=owner,
            link=head,
            sites=[site.name for site in sites],
            nodes=[hosts[node.name] for node in nodes],
            peer=pulumi.Output.from_input(peer(cluster, settings.head.compute)) if is_measured(config) else None,
            placeholders=[host_of(node, None) for node in allowed.nodes] if config.elastic else (),
            access=tailnet.access,
            measured_before=last_run.output("validation"),
        )
        measured = self.pool.validation.results if self.pool.validation else pulumi.Output.from_input({})
        self.outputs = last_run.completed(
            {
                "cluster": cluster_output(
                    config,
                    name=cluster["name"],
                    head=cluster["head"],
                    link=head,
                    members=self.pool.nodes,
                    notes=pulumi.Output.from_input(warnings_about_pool(cluster["head"], settings.head.compute)),
                ),
                "validation": measured,
                "busbw_gb_per_s": measured.apply(headline),
                "release": RELEASE,
                **rented_output(created.rented, last_run),
                **({"elastic": elastic_output(config, owner, allowed.nodes, allowed.prices)} if config.elastic else {}),
            }
        )
