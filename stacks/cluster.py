"""The stack kind `cluster`: machines of all sites, one head node, one cluster, and what the stack outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pulumi

from components.cluster import Cluster
from components.cluster_settings import ClusterSettings, Share, Tailnet, User
from components.compute_node import ComputeNode
from components.config_files.slurm import PartitionEntry, site_node_set
from components.head_node import HeadNode
from components.host import Host
from components.nccl_validation import ValidationSettings
from lab.identity import lab_id
from stacks.config import LabSite, NodeSpec, StackConfig
from stacks.outputs import headline, node_output
from stacks.sites import hosts
from stacks.sites.lab import PROJECT, LabNetworks


def _node_output(host: Host, known: dict[str, Any]) -> dict[str, Any]:
    return node_output(host.name, host.site, known["facts"], known["joined"])


class ClusterStack:
    """Everything of one stack. `outputs` is what `pulumi stack output` shows."""

    def __init__(self, config: StackConfig, stack: str) -> None:
        lab = self._lab(config, stack)
        machines = {spec.name: self._host(config, spec, lab) for spec in config.nodes()}
        head = next(spec for spec in config.nodes() if spec.is_head)
        self.cluster = Cluster(
            self._settings(config, lab),
            ValidationSettings(
                min_bytes=config.validation.min_bytes,
                max_bytes=config.validation.max_bytes,
                factor=config.validation.factor,
                iterations=config.validation.iterations,
                warmup=config.validation.warmup,
                gate_bytes=config.validation.gate_bytes,
                ranks_per_node=config.validation.ranks_per_node,
                time_limit_minutes=config.validation.time_limit_minutes,
                floors_gb_per_s=config.validation.floors_gb_per_s,
                rerun=config.validation.rerun,
                queue_limit_seconds=config.validation.queue_limit_seconds,
            ),
            sites=[site.name for site in config.sites],
            head=machines[head.name],
            head_computes=head.compute,
            nodes=[machines[spec.name] for spec in config.nodes() if not spec.is_head],
        )
        self.outputs = self._outputs(config)

    def _lab(self, config: StackConfig, stack: str) -> LabNetworks | None:
        subnets = {
            site.name: None if site.subnet is None else str(site.subnet)
            for site in config.sites
            if isinstance(site, LabSite)
        }
        if not subnets:
            return None
        # The stack is part of the name, so that two stacks of one checkout are two labs.
        return LabNetworks(lab_id(PROJECT, suffix=stack), subnets)

    def _host(self, config: StackConfig, spec: NodeSpec, lab: LabNetworks | None) -> Host:
        if spec.host is not None:
            return hosts.host(spec, spec.host)
        if lab is None:
            raise ValueError(f"{spec.name} stands in no lab and is no host")  # the config's own checks rule this out
        return lab.host(spec, bare=spec.pool is not None and spec.pool.bare)

    def _settings(self, config: StackConfig, lab: LabNetworks | None) -> ClusterSettings:
        control_url: pulumi.Input[str] = config.tailnet.control_url or (lab.control_url if lab else "")
        key = config.tailnet.auth_key
        return ClusterSettings(
            name=config.cluster.name,
            users=tuple(User(user.name, user.uid, user.gid) for user in config.users),
            share=Share(path=config.storage.path, mount=config.storage.mount),
            tailnet=Tailnet(
                control_url=control_url,
                auth_key=pulumi.Output.secret(key.get_secret_value()) if key else "",
                tag=config.tailnet.tag,
            ),
            slurm_settings=config.slurm.settings,
            partitions=tuple(
                PartitionEntry(
                    partition.name, tuple(site_node_set(site) for site in partition.sites), partition.max_time
                )
                for partition in config.slurm.partitions
            ),
            cgroups=config.slurm.cgroups,
            job_limit_seconds=config.slurm.job_limit_seconds,
            munge_generation=config.cluster.munge_generation,
        )

    def _outputs(self, config: StackConfig) -> dict[str, pulumi.Output[Any]]:
        head = self.cluster.head
        members: list[HeadNode | ComputeNode] = [head, *self.cluster.nodes]
        nodes = [
            pulumi.Output.all(facts=member.facts, joined=member.joined).apply(partial(_node_output, member.host))
            for member in members
        ]
        return {
            "cluster": pulumi.Output.all(address=head.address, nodes=pulumi.Output.all(*nodes)).apply(
                lambda known: {
                    "name": config.cluster.name,
                    "control_address": known["address"],
                    "partitions": list(config.partitions()),
                    "nodes": known["nodes"],
                }
            ),
            "validation": self.cluster.validation.results,
            "busbw_gb_per_s": self.cluster.validation.results.apply(headline),
        }
