"""The output `cluster` of a stack, with its nodes and partitions; and the name by which outputs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.host import Host
from components.settings.types import GPUS_FOUND
from stacks.config import PoolConfig, StackConfig
from stacks.outputs import fabric_output, node_output


def full_name(stack: str) -> str:
    """Return `organization/project/stack`: the outputs under it are those of the last run until this one ends."""
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"


def cluster_output(
    config: StackConfig | PoolConfig,
    *,
    name: pulumi.Input[str],
    head: pulumi.Input[str],
    link: HeadLink,
    members: Sequence[HeadNode | ComputeNode],
    notes: pulumi.Output[list[str]],
) -> pulumi.Output[dict[str, Any]]:
    """Return the output of a stack with these nodes, in the cluster of that name and head node."""
    nodes = [
        pulumi.Output.all(facts=member.facts, joined=member.joined, confined=link.cgroups).apply(
            partial(_node_output, member.host)
        )
        for member in members
    ]
    sites = {member.host.name: member.host.site for member in members}
    fabric = pulumi.Output.all(**{member.host.name: member.fabric for member in members}).apply(
        lambda proven: {site.name: _fabric_output(site.name, sites, proven) for site in config.sites}
    )
    return pulumi.Output.all(
        name=name,
        head=head,
        address=link.address,
        nodes=pulumi.Output.all(*nodes),
        notes=notes,
        gpus=pulumi.Output.all(**{member.host.name: member.gpus for member in members}),
        fabric=fabric,
    ).apply(
        lambda known: {
            "name": known["name"],
            "head": known["head"],
            "control_address": known["address"],
            "partitions": _partitions(config, known["gpus"]),
            "nodes": known["nodes"],
            "notes": known["notes"],
            "fabric": known["fabric"],
        }
    )


def _node_output(host: Host, known: dict[str, Any]) -> dict[str, Any]:
    return node_output(host.name, host.site, known["facts"], known["joined"], known["confined"])


def _partitions(config: StackConfig | PoolConfig, gpus: dict[str, str]) -> list[str]:
    """All partitions: those of the config, and `gpu` where a node has GPUs that the config does not name."""
    found = [node for node in config.nodes() if node.compute and not node.gpu and gpus[node.name]]
    return [*config.partitions(), *([GPUS_FOUND] if found else [])]


def _fabric_output(site: str, sites: dict[str, str], proven: dict[str, Any]) -> dict[str, Any]:
    """What the outputs say of a site's fabric; a node that stays on the tailnet is told to whoever runs this, too."""
    found = fabric_output(site, sites, proven)
    for note in found["notes"]:
        pulumi.log.warn(note)
    return found
