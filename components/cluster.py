"""One cluster: a head node, its compute nodes, and the measurement that says what it is worth."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.cluster_settings import ClusterSettings
from components.compute_node import ComputeNode
from components.head_node import HeadNode
from components.host import Host
from components.munge_key import MungeKey
from components.nccl_validation import NcclValidation, ValidationSettings


class Cluster(pulumi.ComponentResource):
    """A Slurm cluster over a tailnet.

    head, nodes    the components of its machines
    validation     the measurement's component; `validation.results` by scope
    munge          the key every node shares
    """

    def __init__(
        self,
        settings: ClusterSettings,
        validation: ValidationSettings,
        *,
        sites: Sequence[str],
        head: Host,
        head_computes: bool,
        nodes: Sequence[Host],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:cluster:Cluster", settings.name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.munge = MungeKey(settings.munge_generation, parent=self)
        self.head = HeadNode(head, settings, self.munge, sites=sites, nodes=nodes, compute=head_computes, opts=child)
        self.nodes = [ComputeNode(node, self.head, settings, self.munge, opts=child) for node in nodes]
        self.validation = NcclValidation(
            self.head,
            self.nodes,
            head_computes=head_computes,
            run_as=settings.users[0].name,
            settings=validation,
            opts=child,
        )
        self.register_outputs({"control_address": self.head.address})
