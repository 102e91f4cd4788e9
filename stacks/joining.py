"""Checks that a pool can join its cluster, based on the outputs of the cluster's stack; and the pool's peer."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.roles.cluster_settings import ClusterSettings
from components.settings.problems import ROOT, Problem
from stacks.config import PoolConfig
from stacks.config.model import ALL
from stacks.config.pods import cluster_problems


def problems(
    config: PoolConfig,
    stack: str,
    cluster: Mapping[str, Any] | None,
    link: Mapping[str, Any] | None,
    settings: ClusterSettings | None,
) -> Iterator[Problem]:
    """Return the reasons why a pool cannot join.

    cluster, link   outputs of the cluster's stack; None if it has none
    settings        the result of HeadLink.settings_of for the link
    """
    path, name = f"{ROOT}cluster", config.cluster
    if config.cluster_stack == stack:
        yield Problem(path, f"{name} is this stack; it cannot join itself; write the name of the cluster's stack")
        return

    def reason(problem: str, fix: str) -> Problem:
        return Problem(path, f"stack {name} {problem}; {fix}")

    up = f"(make up STACK={name})"
    if not cluster or not link or settings is None:
        problem = "has no cluster to join: it is a pool, or its last `up` failed or used another version"
        yield reason(problem, f"no node could join; bring it up first {up}")
        return
    as_site = "add the pool's machines as a site of that stack"
    if link["connection"] is None:
        problem = "has a local head node, which only that machine can reach; the pool's steps could not run"
        yield reason(problem, as_site)
        return
    if link["bastion"]:
        yield reason("has its head node behind a bastion; the pool's steps could not reach it", as_site)
    if is_measured(config) and not _peers(cluster, settings.head.compute):
        if len(cluster["nodes"]) > 1:
            problem = "has only pods, which are not measured, so the way to it could not be measured"
            yield reason(problem, "add a machine that is no pod to that stack, or have only pods in this one")
        else:
            yield reason("has no node that runs jobs; nothing could be measured", f"bring it up again {up}")
    yield from _absent_sections(config, settings)
    yield from _absent_containers(config, settings)
    if any(node.pod for node in config.nodes()):
        for conflict in cluster_problems(settings):
            yield Problem(path, f"the pool has pods, and in stack {name} {conflict}")
    yield from _duplicate_names(config, cluster)


def _absent_sections(config: PoolConfig, settings: ClusterSettings) -> Iterator[Problem]:
    """Report sections of the pool that its cluster does not have."""
    for name in config.overrides:
        if getattr(settings, name) is None and getattr(config, name) is not None:
            problem = f"the cluster has no {name}; its head node lacks them, so jobs could not use them"
            fix = f"remove it here, or write it in the config of {config.cluster}"
            yield Problem(f"{ROOT}{name}", f"{problem}; {fix}")


def _absent_containers(config: PoolConfig, settings: ClusterSettings) -> Iterator[Problem]:
    if settings.containers is None and config.validation.nccl.image:
        problem = "the cluster has no containers; the measurement could not run in one"
        yield Problem(f"{ROOT}validation.nccl.image", f"{problem}; remove it here")


def _duplicate_names(config: PoolConfig, cluster: Mapping[str, Any]) -> Iterator[Problem]:
    nodes, name = cluster["nodes"], cluster["name"]
    sites = {node["site"] for node in nodes} | set(cluster.get("fabric", {}))
    partitions = set(cluster["partitions"]) - {ALL}
    for index, site in enumerate(config.sites):
        if site.name in partitions:
            path = f"{ROOT}sites[{index}].name"
            problem = f"'{site.name}' is already a partition of the cluster {name}; its jobs would be sent to the pool"
            yield Problem(path, f"{problem}; rename the site")
    node_names = {node["name"] for node in nodes}
    for node in config.nodes():
        if node.name in node_names | partitions:
            kind = "node" if node.name in node_names else "partition"
            problem = f"node {node.name} of the pool has the name of a {kind} of the cluster {name}"
            yield Problem(f"{ROOT}sites", f"{problem}; one of the two would be lost; rename it")
    # The step on the head node reports a GPU kind with the name of a user's own partition.
    for kind in sorted({node.gpu.kind for node in config.nodes() if node.gpu} & sites):
        problem = f"the GPU kind {kind} is the name of a site of the cluster {name}"
        yield Problem(f"{ROOT}sites", f"{problem}; slurmctld would reject its config; write the kind differently")


def is_measured(config: PoolConfig) -> bool:
    """Return whether a pool's `up` measures: it is not elastic, and has machines that are no pods and run jobs."""
    return config.elastic is None and any(node.compute and not node.pod for node in config.nodes())


def peer(cluster: Mapping[str, Any], head_computes: bool) -> dict[str, str]:
    """Return the node to measure a pool with: the head node if it runs jobs, else one at its site, else any.

    Keys: `name`, `site`, `address`, and `gpus` such as h200:8, empty without GPUs.
    """
    node = _peers(cluster, head_computes)[0]
    gpus = f"{node['gpu']['kind']}:{int(node['gpus'])}" if node.get("gpu") else ""
    return {"name": node["name"], "site": node["site"], "address": node["tailnet_ip"], "gpus": gpus}


def _peers(cluster: Mapping[str, Any], head_computes: bool) -> list[Mapping[str, Any]]:
    """Return nodes to measure a pool with, the best first."""
    head, *nodes = cluster["nodes"]
    candidates = sorted(nodes, key=lambda node: node["site"] != head["site"])
    if head_computes:
        candidates = [head, *candidates]
    return [node for node in candidates if node["tailnet_ip"] and not node.get("pod") and not node.get("login")]
