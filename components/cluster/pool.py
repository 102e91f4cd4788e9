"""A pool: compute nodes that join the cluster of another stack, and their measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import scripts_for_nodes
from components.cluster.nccl_validation import NcclValidation
from components.cluster.tailnet_access import TailnetAccess
from components.host import Host
from components.roles.order import roles
from components.roles.pool_settings import PoolSettings
from components.roles.role import header_of, secrets_of
from components.roles.slurm.slurm.node_lines import (
    elastic_site_lines,
    node_set_lines,
    placeholder_row,
    promised,
    site_node_set,
)
from components.roles.slurm.slurm.settings import Elastic
from components.steps import composition, results
from components.steps.delivery import deliver
from components.steps.step import REPAIR, Step


class Pool(pulumi.ComponentResource):
    """Nodes that come and go in a lasting cluster. It changes its own machines and the cluster's head node.

    nodes          the components of its machines
    validation     the component of the measurement: the pool's nodes, and the path to the cluster. None for an elastic
                   pool, whose machines run jobs as soon as they are up, and for a pool of pods alone

    owner          the head node's name for the pool's stack, without a slash
    placeholders   of an elastic pool: all nodes that it may have; `nodes` are those that are rented
    peer           the node of the cluster that takes part in the pool's measurement (NcclValidation); None without a
                   measurement
    access         access to the cluster's tailnet
    measured_before   results of the measurements in the previous run
    """

    def __init__(
        self,
        name: str,
        settings: PoolSettings,
        *,
        owner: str,
        link: HeadLink,
        sites: Sequence[str],
        nodes: Sequence[Host],
        peer: pulumi.Output[dict[str, str]] | None,
        access: TailnetAccess,
        measured_before: pulumi.Output[Any],
        placeholders: Sequence[Host] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:cluster:Pool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        pool_roles = roles(settings.joined(link.settings))
        values: dict[str, pulumi.Input[Any]] = header_of(pool_roles)
        values |= {**link.header, "pool_owner": owner, "pool_forget_after_minutes": settings.spot.forget_after_minutes}
        secrets = {
            "munge_key": link.munge_key,
            "tailnet_auth_key": pulumi.Output.secret(access.auth_key),
            **{name: pulumi.Output.secret(text) for name, text in secrets_of(pool_roles).items()},
        }
        # Two pools may run at the same time.
        link = replace(link, machine=replace(link.machine, scripts_folder=f".tailrack/{owner}/scripts"))
        members = placeholders or nodes
        reserve_script = composition.compose(pool_roles, composition.POOL)
        scripts = deliver(
            f"{name}-scripts",
            link.machine,
            (reserve_script, *scripts_for_nodes(pool_roles, pods=any(node.pod for node in members))),
            label=f"{name}: copy setup scripts to the head node",
            parent=self,
            repair=json.dumps(settings.repair, sort_keys=True),
        )
        # This step runs first and is undone last: it rejects names in use before a machine is changed.
        if settings.elastic:
            nodes = [promised(node, settings.elastic) for node in nodes]
        reserve = Step(
            f"{name}-pool",
            link.machine,
            reserve_script,
            {
                **values,
                "pool_nodes": [node.name for node in members],
                "pool_kinds": sorted({node.gpu.kind for node in members if node.gpu}),
                "pool_slurm_conf": [line for site in sites for line in _site_lines(site, settings.elastic)],
                "pool_placeholders": [
                    placeholder_row(host, settings.elastic) for host in placeholders if settings.elastic
                ],
                "pool_kept": [host.name for host in placeholders[: settings.elastic.min]] if settings.elastic else [],
            },
            label=f"{name}: reserve its nodes in the cluster",
            answer=results.NOTHING.as_needed(),
            parent=self,
            depends_on=scripts,
        )
        self.nodes = [
            ComputeNode(
                node,
                link,
                pool_roles,
                {**values, REPAIR: settings.repair.get(node.name, "")},
                secrets,
                access,
                after=[reserve.resource],
                opts=child,
            )
            for node in nodes
        ]
        measured = [node for node in self.nodes if node.host.is_measured]
        self.validation = (
            NcclValidation(link, measured, settings.validation, measured_before, peer, opts=child) if peer else None
        )
        self.register_outputs({})


def _site_lines(site: str, elastic: Elastic | None) -> Sequence[str]:
    return elastic_site_lines(site, elastic) if elastic else node_set_lines(site_node_set(site), site)
