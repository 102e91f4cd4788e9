"""A compute node, and what the head node keeps of it. Touches itself and the head node, nobody else."""

from __future__ import annotations

import pulumi

from components.cluster_settings import ClusterSettings
from components.gate import gate
from components.head_node import MPI_PACKAGES, HeadNode, slurmd_values
from components.host import Host
from components.munge_key import MungeKey
from components.remote import Step
from components.tailnet import join


class ComputeNode(pulumi.ComponentResource):
    """One member of the cluster.

    facts    Output[dict], see components.gate
    joined   Output[dict], see components.tailnet
    ready    the resource after which Slurm gives it jobs

    Four steps: gate and join on the node; then, on the head node, its export and its certificate (which also sees
    it off on delete: drain, wait or requeue, ask it to leave, forget it); then users, share and slurmd on the node.
    """

    def __init__(
        self,
        host: Host,
        head: HeadNode,
        settings: ClusterSettings,
        munge: MungeKey,
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:cluster:ComputeNode", host.name, None, opts)
        self.host = host
        looked = gate(host, parent=self, controller_facts=head.facts, cgroups=head.cgroups)
        self.facts = looked.result
        joined = join(
            host,
            settings.tailnet,
            munge,
            parent=self,
            head_address=head.address,
            depends_on=[looked.resource],
        )
        self.joined = joined.result
        member = Step(
            f"{host.name}-member",
            head.host,
            "member",
            {
                "MEMBER": host.name,
                "MEMBER_ADDRESS": self.joined["tailnet_ip"],
                "MEMBER_HOST_KEY": self.joined["host_key"],
                "MEMBER_SSH_PORT": self.joined["sshd_port"],
                "JOB_LIMIT": settings.job_limit_seconds,
                **head.export_values(settings),
            },
            label=f"{host.name}: export and certificate on the head node",
            libraries=("lib/nfs_server", "lib/authority"),
            undo=True,
            parent=self,
            depends_on=[head.ready, joined.resource],
        )
        role = Step(
            f"{host.name}-node",
            host,
            "node",
            {
                "HEAD_ADDRESS": head.address,
                "NODE_PACKAGES": MPI_PACKAGES,
                "USERS": settings.user_lines,
                "SHARE_PATH": settings.share.path,
                "SHARE_MOUNT": settings.share.mount,
                "JOB_LIMIT": settings.job_limit_seconds,
                "AUTHORITY": head.joined["authority"],
                "LEAVE_PUBLIC_KEY": head.joined["leave_key"],
                "CERTIFICATE": member.result["certificate"],
                **slurmd_values(host),
            },
            label=f"{host.name}: users, share, slurmd",
            libraries=(
                "lib/packages",
                "lib/users",
                "lib/names",
                "lib/ssh_trust",
                "lib/nfs_mount",
                "lib/slurmd",
                "lib/leaving",
            ),
            parent=self,
            depends_on=[member.resource],
        )
        self.result = role.result
        self.ready: pulumi.Resource = role.resource
        self.register_outputs({"tailnet_ip": self.joined["tailnet_ip"], "slurm_version": role.result["slurm_version"]})
