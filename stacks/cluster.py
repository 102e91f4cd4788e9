"""The stack kind `cluster`: machines of all sites, one head node, one cluster, and what the stack outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pulumi

from components.cluster import Cluster
from components.compute_node import ComputeNode
from components.head_node import HeadNode
from components.host import Host
from stacks.config import StackConfig
from stacks.outputs import headline, node_output
from stacks.sites.machines import machines


def _node_output(host: Host, known: dict[str, Any]) -> dict[str, Any]:
    return node_output(host.name, host.site, known["facts"], known["joined"])


def _own(stack: str) -> str:
    """The full name of this stack: its outputs are those of the last run until this one ends."""
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"


class ClusterStack:
    """Everything of one stack. `outputs` is what `pulumi stack output` shows."""

    def __init__(self, config: StackConfig, stack: str) -> None:
        head, *nodes = config.nodes()
        made = machines(config.sites, [head, *nodes], stack)
        self.cluster = Cluster(
            config,
            measured_before=pulumi.StackReference("last-run", stack_name=_own(stack)).get_output("validation"),
            control_url=config.tailnet.control_url or ("" if made.control_url is None else made.control_url),
            sites=[site.name for site in config.sites],
            head=made.hosts[head.name],
            nodes=[made.hosts[node.name] for node in nodes],
        )
        self.outputs = self._outputs(config)

    def _outputs(self, config: StackConfig) -> dict[str, pulumi.Output[Any]]:
        head = self.cluster.head
        members: list[HeadNode | ComputeNode] = [head, *self.cluster.nodes]
        nodes = [
            pulumi.Output.all(facts=member.facts, joined=member.joined).apply(partial(_node_output, member.host))
            for member in members
        ]
        return {
            "cluster": pulumi.Output.all(
                address=head.link.address, nodes=pulumi.Output.all(*nodes), notes=head.notes
            ).apply(
                lambda known: {
                    "name": config.cluster.name,
                    "control_address": known["address"],
                    "partitions": list(config.partitions()),
                    "nodes": known["nodes"],
                    "notes": known["notes"],
                }
            ),
            "validation": self.cluster.validation.results,
            "busbw_gb_per_s": self.cluster.validation.results.apply(headline),
        }
