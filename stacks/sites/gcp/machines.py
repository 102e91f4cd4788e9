"""Machines of kind `gcp`, from Google's Pulumi package."""

from collections.abc import Sequence

import pulumi_gcp as gcp

from stacks.sites.gcp.model import GcpNode, GcpSite
from stacks.sites.machines import Machines
from stacks.sites.rented.cloud_machine import Created, Request, cloud_machines


def machines(sites: Sequence[GcpSite], nodes: Sequence[GcpNode], stack: str) -> Machines:
    """Return the instances of all gcp sites of the stack."""
    return cloud_machines(sites, nodes, stack, _create, ["metadata", "bootDisk"])


def _create(site: GcpSite, node: GcpNode, request: Request) -> Created:
    instance = gcp.compute.Instance(
        f"{node.name}-instance",
        # A name is unique in a project and zone, so another stack of the same names fails and takes nothing.
        name=f"{request.tags['tailrack-stack']}-{node.name}"[:63].rstrip("-"),
        machine_type=node.type,
        project=site.project,
        zone=site.zone,
        boot_disk={"initialize_params": {"image": site.image, "size": node.disk_gb}, "auto_delete": True},
        network_interfaces=[{"network": site.network, "access_configs": [{}]}],
        # A machine with GPUs cannot move to another host for maintenance.
        scheduling={
            "on_host_maintenance": "TERMINATE",
            "automatic_restart": not node.spot,
            "preemptible": bool(node.spot),
            "provisioning_model": "SPOT" if node.spot else "STANDARD",
            **({"instance_termination_action": "DELETE"} if node.spot else {}),
        },
        metadata={"user-data": request.user_data, "block-project-ssh-keys": "true"},
        labels=request.tags,
        opts=request.opts,
    )
    return Created(instance, instance.network_interfaces[0].access_configs[0].nat_ip)
