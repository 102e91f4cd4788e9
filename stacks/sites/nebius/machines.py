"""Machines of kind `nebius`, from Nebius's Pulumi package."""

from collections.abc import Sequence
from typing import Any

import pulumi_nebius as nebius

from stacks.sites.machines import Machines
from stacks.sites.nebius.model import NebiusNode, NebiusSite
from stacks.sites.rented.cloud_machine import Created, Request, cloud_machines


def machines(sites: Sequence[NebiusSite], nodes: Sequence[NebiusNode], stack: str) -> Machines:
    """Return the machines of all nebius sites of the stack."""
    return cloud_machines(sites, nodes, stack, _create, ["cloudInitUserData", "bootDisk"])


def _create(site: NebiusSite, node: NebiusNode, request: Request) -> Created:
    name = f"{request.tags['tailrack-stack']}-{node.name}"
    instance = nebius.ComputeV1Instance(
        f"{node.name}-instance",
        name=name,
        parent_id=site.project,
        resources={"platform": node.type, "preset": node.preset},
        boot_disk={
            "attach_mode": "READ_WRITE",
            "managed_disk": {
                "name": f"{name}-boot",
                "spec": {
                    "type": "NETWORK_SSD",
                    "size_gibibytes": node.disk_gb,
                    "source_image_family": {"image_family": site.image},
                },
            },
        },
        network_interfaces=[
            {"name": "eth0", "subnet_id": site.subnet, "ip_address": {}, "public_ip_address": {}},
        ],
        preemptible={"on_preemption": "STOP"} if node.preemptible else None,
        cloud_init_user_data=request.user_data,
        labels=request.tags,
        opts=request.opts,
    )
    return Created(instance, instance.status.apply(_address))


def _address(status: Any) -> str:
    """Return the public address; Nebius writes it with its prefix, such as 192.0.2.1/32."""
    return str(status.network_interfaces[0].public_ip_address.address).split("/")[0]
