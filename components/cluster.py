"""One cluster: a head node, its compute nodes, and the measurement that says what it is worth."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.cluster_settings import ClusterSettings
from components.compute_node import ComputeNode
from components.head_node import HeadNode
from components.host import Host
from components.munge_key import MungeKey
from components.nccl_validation import NcclValidation


class Cluster(pulumi.ComponentResource):
    """A Slurm cluster over a tailnet.

    head, nodes    the components of its machines
    validation     the measurement's component; `validation.results` by scope
    munge          the key every node shares

    control_url    the control server of the tailnet, empty for Tailscale's own; may be made in the same `up`
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        control_url: pulumi.Input[str],
        sites: Sequence[str],
        head: Host,
        nodes: Sequence[Host],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:cluster:Cluster", settings.cluster.name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.munge = MungeKey(settings.cluster.munge_generation, parent=self)
        self.head = HeadNode(head, settings, self.munge, control_url=control_url, sites=sites, nodes=nodes, opts=child)
        self.nodes = [ComputeNode(node, self.head, settings, self.munge, opts=child) for node in nodes]
        self.validation = NcclValidation(
            self.head,
            self.nodes,
            head_computes=settings.head.compute,
            run_as=settings.users[0].name,
            settings=settings.validation,
            opts=child,
        )
        self.register_outputs({"control_address": self.head.address})
