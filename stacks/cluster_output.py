"""The output `cluster` of a stack, and the full name of a stack."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.cluster.warnings import warnings_about_logins
from components.host import Host
from components.roles.network.fabric.facts import interfaces_of
from components.settings.types import GPUS_FOUND
from components.steps.values import Value, nested
from stacks.config import PoolConfig, StackConfig
from stacks.outputs import node_output


def full_name(stack: str) -> str:
    """Return `organization/project/stack`; during a run, its outputs are those of the last run."""
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
    """Return the stack's output `cluster` for these nodes, in the cluster with this name and head node."""
    hosts = {member.host.name: member.host for member in members}
    prices = {node.name: node.price_per_hour for node in config.nodes()}
    cluster_values: dict[str, Value] = {"name": name, "head": head, "address": link.address, "notes": notes}

    def output(values: dict[str, dict[str, Any]]) -> dict[str, Any]:
        cluster, facts = values["cluster"], values["facts"]
        return {
            "name": cluster["name"],
            "head": cluster["head"],
            "control_address": cluster["address"],
            "partitions": _partitions(config, values["gpus"]),
            "nodes": [
                {
                    **node_output(host, facts[node], values["confined"][node]),
                    "path": values["paths"][node],
                    # A price of the config is exact; a cloud's is in the host's text.
                    "price_per_hour": prices[node] if prices[node] is not None else _amount(values["prices"][node]),
                }
                for node, host in hosts.items()
            ],
            "currency": config.currency,
            "notes": [
                *warnings_about_logins(link.settings, _unconfined(members, values["confined"])),
                *cluster["notes"],
            ],
            "fabric": {site.name: _fabric_output(site.name, hosts, values["fabric"]) for site in config.sites},
        }

    return nested(
        {
            "cluster": cluster_values,
            "facts": {member.host.name: member.facts for member in members},
            "paths": {member.host.name: member.path for member in members},
            "gpus": {member.host.name: member.gpus for member in members},
            "fabric": {member.host.name: member.fabric for member in members},
            "prices": {member.host.name: member.host.price for member in members},
            "confined": {member.host.name: member.confined for member in members},
        }
    ).apply(output)


def _unconfined(members: Sequence[HeadNode | ComputeNode], confined: dict[str, bool | None]) -> list[str]:
    """Return the names of compute nodes where cgroups do not confine jobs. Users have no login to pods."""
    names = [member.host.name for member in members if isinstance(member, ComputeNode) and member.host.is_measured]
    return [name for name in names if confined[name] is False]


def _amount(price: str) -> float | None:
    """Return the amount of a host's price, such as `2.05 USD`; None without one."""
    return float(price.split()[0]) if price else None


def _partitions(config: StackConfig | PoolConfig, gpus: dict[str, str]) -> list[str]:
    """Return all partitions: those of the config, and `gpu` if a node has GPUs that the config does not name."""
    unnamed = [node for node in config.nodes() if node.compute and not node.gpu and gpus.get(node.name)]
    return [*config.partitions(), *([GPUS_FOUND] if unnamed else [])]


def _fabric_output(site: str, hosts: Mapping[str, Host], proven: Mapping[str, Any]) -> dict[str, Any]:
    """Return the networks of a site: each node's interfaces, the best first, and notes, which also become warnings.

    proven   result of proving a node's fabric, by node (components/roles/network/fabric/groups.py); None on the tailnet
    """
    results = {node: result for node, result in proven.items() if result and hosts[node].site == site}
    notes = [result["note"] for result in results.values() if result["note"]]
    for note in notes:
        pulumi.log.warn(note)
    return {"interfaces": interfaces_of(results), "notes": notes}
