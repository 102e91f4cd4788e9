"""The stack kind `pool`: machines that join the running cluster of another stack, and what the stack outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pulumi

from components.cluster.head_link import HeadLink
from components.cluster.notes import notes_of_pool
from components.cluster.pool import Pool
from components.roles.order import roles
from stacks.config import ConfigError, PoolConfig
from stacks.joining import peer, problems
from stacks.outputs import headline
from stacks.sites.machines import machines
from stacks.stack_outputs import cluster_output, full_name
from stacks.tailnet.way_in import stack_tailnet


def _refuse(config: PoolConfig, stack: str, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the outputs `cluster` and `link` of the cluster's stack; RunError with all that keeps the pool from it."""
    found = list(problems(config, stack, outputs["cluster"], outputs["link"]))
    if found:
        raise pulumi.RunError(str(ConfigError(found)))
    return outputs


class PoolStack:
    """Everything of one pool. `outputs` is what `pulumi stack output` shows: as of a cluster, for its own nodes."""

    def __init__(self, config: PoolConfig, stack: str) -> None:
        nodes = config.nodes()
        made = machines(config.sites, nodes, stack, config.cluster_stack)
        theirs = pulumi.StackReference("cluster", stack_name=config.cluster)
        # Everything hangs on this, so that nothing is done where it refuses.
        joined = pulumi.Output.all(cluster=theirs.get_output("cluster"), link=theirs.get_output("head_link")).apply(
            partial(_refuse, config, stack)
        )
        link = HeadLink.from_outputs(joined["link"])
        cluster = pulumi.Output.unsecret(joined["cluster"])
        tailnet = stack_tailnet(
            config.tailnet,
            roles(config.for_roles()),
            config.sites,
            made.control_url,
            stack=stack,
            name=stack,
            tag=link.shared["TAILNET_TAG"],
            ephemeral=True,
        )
        hosts = tailnet.hosts(made.hosts)
        self.pool = Pool(
            stack,
            config,
            owner=full_name(stack).replace("/", "."),
            link=link,
            sites=[site.name for site in config.sites],
            nodes=[hosts[node.name] for node in nodes],
            peer=pulumi.Output.all(cluster, link.computes).apply(lambda known: peer(*known)),
            way_in=tailnet.way_in,
            measured_before=pulumi.StackReference("last-run", stack_name=full_name(stack)).get_output("validation"),
        )
        self.outputs = {
            "cluster": cluster_output(
                config,
                name=cluster["name"],
                head=cluster["head"],
                link=link,
                members=self.pool.nodes,
                notes=pulumi.Output.all(cluster["head"], link.computes).apply(lambda known: notes_of_pool(*known)),
            ),
            "validation": self.pool.validation.results,
            "busbw_gb_per_s": self.pool.validation.results.apply(headline),
        }
