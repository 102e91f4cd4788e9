"""The head node: tailnet, munge, users, NFS server, slurmctld, and slurmd where it computes too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from components.cluster_settings import ClusterSettings
from components.config_files.slurm import (
    NodeEntry,
    SlurmModel,
    controller_files,
    node_features,
    node_gres,
)
from components.gate import gate
from components.host import Host
from components.munge_key import MungeKey
from components.remote import Step
from components.tailnet import join

# What the CPU measurement needs on every node that runs jobs.
MPI_PACKAGES = ("openmpi-bin", "python3-mpi4py", "python3-numpy")


def node_entry(host: Host) -> NodeEntry:
    """What the controller's files say of a host."""
    return NodeEntry(host.name, host.site, (host.gpu.kind, host.gpu.count) if host.gpu else None)


def slurmd_values(host: Host) -> dict[str, pulumi.Input[Any]]:
    """Header values of scripts/lib/slurmd.sh."""
    entry = node_entry(host)
    return {"NODE_FEATURES": ",".join(node_features(entry, host.features)), "NODE_GRES": node_gres(entry)}


class HeadNode(pulumi.ComponentResource):
    """The machine the others join.

    address        Output[str], its tailnet address
    facts          Output[dict], see components.gate
    joined         Output[dict], see components.tailnet
    cgroups        Output[bool], whether Slurm confines jobs by cgroups
    slurm_files    Output[dict], name to text of the files in /etc/slurm
    ready          the resource after which slurmctld answers and the share is served
    """

    def __init__(
        self,
        host: Host,
        settings: ClusterSettings,
        munge: MungeKey,
        *,
        sites: Sequence[str],
        nodes: Sequence[Host],
        compute: bool,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:cluster:HeadNode", host.name, None, opts)
        self.host = host
        looked = gate(host, parent=self)
        self.facts = looked.result
        self.cgroups: pulumi.Output[bool] = (
            pulumi.Output.from_input(settings.cgroups)
            if settings.cgroups is not None
            else self.facts.apply(lambda facts: bool(facts["cgroups"]))
        )
        joined = join(host, settings.tailnet, munge, parent=self, depends_on=[looked.resource])
        self.joined = joined.result
        self.address: pulumi.Output[str] = self.joined.apply(lambda result: str(result["tailnet_ip"]))

        def files(known: dict[str, Any]) -> dict[str, str]:
            computing = [*([host] if compute else []), *nodes]
            return controller_files(
                SlurmModel(
                    cluster_name=settings.name,
                    head_name=host.name,
                    head_address=known["address"],
                    sites=tuple(sites),
                    nodes=tuple(node_entry(node) for node in computing),
                    partitions=settings.partitions,
                    settings=settings.slurm_settings,
                    cgroups=known["cgroups"],
                )
            )

        self.slurm_files = pulumi.Output.all(address=self.address, cgroups=self.cgroups).apply(files)
        names = tuple(controller_files(SlurmModel(settings.name, host.name, "", (), ())))
        role = Step(
            f"{host.name}-head",
            host,
            "head",
            {
                "HEAD_ADDRESS": self.address,
                "HEAD_PACKAGES": MPI_PACKAGES if compute else (),
                "COMPUTE": "yes" if compute else "no",
                "USERS": settings.user_lines,
                "JOB_LIMIT": settings.job_limit_seconds,
                "SHARE_MOUNT": settings.share.mount,
                **self.export_values(settings),
                **slurmd_values(host),
                "SLURM_FILES": names,
                **{
                    "SLURM_FILE_" + name.replace(".", "_").replace("-", "_").upper(): self.slurm_files[name]
                    for name in names
                },
            },
            label=f"{host.name}: users, NFS server, slurmctld",
            libraries=(
                "lib/packages",
                "lib/users",
                "lib/names",
                "lib/authority",
                "lib/ssh_trust",
                "lib/homes",
                "lib/nfs_server",
                "lib/slurmctld",
                "lib/slurmd",
                "lib/leaving",
            ),
            undo=True,
            parent=self,
            depends_on=[joined.resource],
        )
        self.result = role.result
        self.ready: pulumi.Resource = role.resource
        self.register_outputs({"tailnet_ip": self.address, "slurm_version": role.result["slurm_version"]})

    def export_values(self, settings: ClusterSettings) -> dict[str, pulumi.Input[Any]]:
        """Header values of scripts/lib/nfs_server.sh."""
        return {
            "SHARE_PATH": settings.share.path,
            "KERNEL_NFS": self.facts.apply(lambda facts: "true" if facts["kernel_nfs_server"] else "false"),
        }
