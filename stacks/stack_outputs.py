"""The output `cluster` of a stack, with its nodes and partitions; and the name by which outputs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.settings.types import GPUS_FOUND
from components.steps.values import Value, nested
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
    hosts = {member.host.name: member.host for member in members}
    prices = {node.name: node.price_per_hour for node in config.nodes()}
    sites = {node: host.site for node, host in hosts.items()}
    of_cluster: dict[str, Value] = {
        "name": name, "head": head, "address": link.address, "notes": notes, "confined": link.cgroups
    }  # fmt: skip

    def said(known: dict[str, dict[str, Any]]) -> dict[str, Any]:
        cluster, facts, joined = known["cluster"], known["facts"], known["joined"]
        return {
            "name": cluster["name"],
            "head": cluster["head"],
            "control_address": cluster["address"],
            "partitions": _partitions(config, known["gpus"]),
            "nodes": [
                {
                    **node_output(node, host.site, facts[node], joined[node], cluster["confined"]),
                    "price_per_hour": prices[node],
                }
                for node, host in hosts.items()
            ],
            "currency": config.currency,
            "notes": cluster["notes"],
            "fabric": {site.name: _fabric_output(site.name, sites, known["fabric"]) for site in config.sites},
        }

    return nested(
        {
            "cluster": of_cluster,
            "facts": {member.host.name: member.facts for member in members},
            "joined": {member.host.name: member.joined for member in members},
            "gpus": {member.host.name: member.gpus for member in members},
            "fabric": {member.host.name: member.fabric for member in members},
        }
    ).apply(said)


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
