"""The stack kind `cluster`: machines of all sites, one head node, one cluster, and what the stack outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pulumi

from components.cluster import Cluster
from components.compute_node import ComputeNode
from components.head_node import HeadNode
from components.host import Host
from components.roles.order import roles
from components.settings.types import GPUS_FOUND
from stacks.config import StackConfig
from stacks.outputs import fabric_output, headline, node_output
from stacks.sites.machines import machines
from stacks.tailnet.way_in import stack_tailnet


def _node_output(host: Host, known: dict[str, Any]) -> dict[str, Any]:
    return node_output(host.name, host.site, known["facts"], known["joined"], known["confined"])


def _partitions(config: StackConfig, gpus: dict[str, str]) -> list[str]:
    """All partitions: those of the config, and `gpu` where a node has GPUs that the config does not name."""
    found = [node for node in config.nodes() if node.compute and not node.gpu and gpus[node.name]]
    return [*config.partitions(), *([GPUS_FOUND] if found else [])]


def _fabric_output(site: str, sites: dict[str, str], proven: dict[str, Any]) -> dict[str, Any]:
    """What the outputs say of a site's fabric; a node that stays on the tailnet is told to whoever runs this, too."""
    found = fabric_output(site, sites, proven)
    for note in found["notes"]:
        pulumi.log.warn(note)
    return found


def _own(stack: str) -> str:
    """The full name of this stack: its outputs are those of the last run until this one ends."""
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"


class ClusterStack:
    """Everything of one stack. `outputs` is what `pulumi stack output` shows."""

    def __init__(self, config: StackConfig, stack: str) -> None:
        head, *nodes = config.nodes()
        made = machines(config.sites, [head, *nodes], stack)
        self.tailnet = stack_tailnet(
            config.tailnet, roles(config), config.sites, made.control_url, stack=stack, name=config.cluster.name
        )
        hosts = self.tailnet.hosts(made.hosts)
        self.cluster = Cluster(
            config,
            measured_before=pulumi.StackReference("last-run", stack_name=_own(stack)).get_output("validation"),
            way_in=self.tailnet.way_in,
            sites=[site.name for site in config.sites],
            head=hosts[head.name],
            nodes=[hosts[node.name] for node in nodes],
        )
        self.outputs = self._outputs(config)

    def _outputs(self, config: StackConfig) -> dict[str, pulumi.Output[Any]]:
        head = self.cluster.head
        members: list[HeadNode | ComputeNode] = [head, *self.cluster.nodes]
        nodes = [
            pulumi.Output.all(facts=member.facts, joined=member.joined, confined=head.link.cgroups).apply(
                partial(_node_output, member.host)
            )
            for member in members
        ]
        sites = {member.host.name: member.host.site for member in members}
        fabric = pulumi.Output.all(**{member.host.name: member.fabric for member in members}).apply(
            lambda proven: {site.name: _fabric_output(site.name, sites, proven) for site in config.sites}
        )
        return {
            "cluster": pulumi.Output.all(
                address=head.link.address,
                nodes=pulumi.Output.all(*nodes),
                notes=head.notes,
                gpus=pulumi.Output.all(**{member.host.name: member.gpus for member in members}),
                fabric=fabric,
            ).apply(
                lambda known: {
                    "name": config.cluster.name,
                    "control_address": known["address"],
                    "partitions": _partitions(config, known["gpus"]),
                    "nodes": known["nodes"],
                    "notes": known["notes"],
                    "fabric": known["fabric"],
                }
            ),
            "validation": self.cluster.validation.results,
            "busbw_gb_per_s": self.cluster.validation.results.apply(headline),
            **({"tailnet_policy": pulumi.Output.from_input(policy)} if (policy := self.tailnet.policy) else {}),
        }
