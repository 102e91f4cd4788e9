"""What a pool must be to its cluster, by the outputs of the cluster's stack; and whom it is measured with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.roles.cluster_settings import ClusterSettings
from components.settings.problems import ROOT, Problem
from stacks.config import PoolConfig
from stacks.config.model import ALL


def problems(
    config: PoolConfig,
    stack: str,
    cluster: Mapping[str, Any] | None,
    link: Mapping[str, Any] | None,
    settings: ClusterSettings | None,
) -> Iterator[Problem]:
    """What keeps a pool from joining.

    cluster, link   outputs of the cluster's stack: None for what it has not
    settings        what HeadLink.settings_of makes of the link
    """
    at, there = f"{ROOT}cluster", config.cluster
    if config.cluster_stack == stack:
        yield Problem(
            at, f"{there} is this stack itself; nothing would be joined; write the name of the cluster's stack"
        )
        return
    if not cluster or not link or settings is None:
        why = "has no cluster that can be joined: it is a pool, or its last `up` failed or is of another version"
        yield Problem(at, f"stack {there} {why}; no node could join; bring it up first (make up STACK={there})")
        return
    if link["connection"] is None:
        why = "has a local head node, which that machine alone reaches; the pool's steps could not"
        yield Problem(at, f"stack {there} {why}; write the pool's machines as a site of that stack")
        return
    if link["bastion"]:
        why = "has its head node behind a bastion; the pool's steps could not reach it"
        yield Problem(at, f"stack {there} {why}; write the pool's machines as a site of that stack")
    if not _peers(cluster, settings.head.compute):
        why = f"has no node that runs jobs; nothing could be measured; bring it up again (make up STACK={there})"
        yield Problem(at, f"stack {there} {why}")
    yield from _no_section(config, settings)
    yield from _no_containers(config, settings)
    yield from _taken_names(config, cluster)


def _no_section(config: PoolConfig, settings: ClusterSettings) -> Iterator[Problem]:
    """Sections of the pool's that its cluster does without."""
    for name in config.said:
        if getattr(settings, name) is None and getattr(config, name) is not None:
            what = f"the cluster has no {name}; they are nowhere on its head node, and jobs could not use them"
            yield Problem(f"{ROOT}{name}", f"{what}; take it out here, or write it in the config of {config.cluster}")


def _no_containers(config: PoolConfig, settings: ClusterSettings) -> Iterator[Problem]:
    if settings.containers is None and config.validation.nccl.image:
        what = "the cluster has no containers, and the measurement could not run in one"
        yield Problem(f"{ROOT}validation.nccl.image", f"{what}; take it out here")


def _taken_names(config: PoolConfig, cluster: Mapping[str, Any]) -> Iterator[Problem]:
    nodes, name = cluster["nodes"], cluster["name"]
    sites = {node["site"] for node in nodes} | set(cluster.get("fabric", {}))
    partitions = set(cluster["partitions"]) - {ALL}
    for index, site in enumerate(config.sites):
        if site.name in partitions:
            at = f"{ROOT}sites[{index}].name"
            what = f"'{site.name}' is a partition of the cluster {name} already; its jobs would be sent to the pool"
            yield Problem(at, f"{what}; give the site another name")
    taken = {node["name"] for node in nodes}
    for node in config.nodes():
        if node.name in taken | partitions:
            what = f"node {node.name} of the pool has the name of a {'node' if node.name in taken else 'partition'} of"
            yield Problem(
                f"{ROOT}sites", f"{what} the cluster {name}; one of the two would be lost; give it another name"
            )
    # That a kind has the name of a partition of the user's own, the step on the head node sees.
    for kind in sorted({node.gpu.kind for node in config.nodes() if node.gpu} & sites):
        what = f"the GPU kind {kind} is the name of a site of the cluster {name}"
        yield Problem(f"{ROOT}sites", f"{what}; slurmctld would refuse its config; write the kind otherwise")


def peer(cluster: Mapping[str, Any], head_computes: bool) -> dict[str, str]:
    """Return the node that a pool is measured with: the head node if it computes, else one at its site, else any.

    `name`, `site`, `address`, and `gpus` such as h200:8, empty without any.
    """
    node = _peers(cluster, head_computes)[0]
    gpus = f"{node['gpu']['kind']}:{int(node['gpus'])}" if node.get("gpu") else ""
    return {"name": node["name"], "site": node["site"], "address": node["tailnet_ip"], "gpus": gpus}


def _peers(cluster: Mapping[str, Any], head_computes: bool) -> list[Mapping[str, Any]]:
    """Nodes that a pool could be measured with, the best first."""
    head, *others = cluster["nodes"]
    near = sorted(others, key=lambda node: node["site"] != head["site"])
    return [node for node in ([head, *near] if head_computes else near) if node["tailnet_ip"]]
