"""Machines of kind `aws`: EC2 instances. The first connection to each is verified.

The program creates a first host key and sends it in the user data. At the first connection the machine creates its own
key, which verifies every later connection.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pulumi
from pulumi_aws import ec2, ssm

from components.host import Connection, Host
from stacks.sites.aws.efa import interfaces
from stacks.sites.aws.images import IMAGES, Image
from stacks.sites.aws.model import AwsHead, AwsNode, AwsPool, AwsSite
from stacks.sites.aws.network import AwsNetwork, apply_check
from stacks.sites.aws.offers import image_that_fits
from stacks.sites.machines import Machines, host_of
from stacks.sites.rented.first_key import first_key, own_key_connection
from stacks.sites.rented.user_data import user_data

SSH_PORT = 22


def machines(sites: Sequence[AwsSite], nodes: Sequence[AwsNode], stack: str) -> Machines:
    """Return the instances of all aws sites of the stack."""
    hosts: dict[str, Host] = {}
    for site in sites:
        tags = {**site.tags, "tailrack:stack": stack, "tailrack:site": site.name}
        site_nodes = [node for node in nodes if node.site == site.name]
        network = AwsNetwork(site, {node.shape.type for node in site_nodes}, tags)
        shared = {pool.name: _shared(site, pool, network, tags) for pool in site.pools}
        for node in site_nodes:
            hosts[node.name] = AwsInstance(site, node, network, shared, tags).host
    return Machines(hosts)


def _shared(site: AwsSite, pool: AwsPool, network: AwsNetwork, tags: dict[str, str]) -> dict[str, Any]:
    """Return the inputs that all instances of a pool share: a placement group, a launch template."""
    inputs: dict[str, Any] = {}
    name = f"{site.name}-{pool.name}"
    if pool.grouped:
        group = ec2.PlacementGroup(f"{name}-group", strategy="cluster", region=site.region, tags=tags)
        inputs["placement_group"] = group.name
    elif pool.placement_group.startswith("pg-"):
        inputs["placement_group_id"] = pool.placement_group
    if pool.efa:
        # EFA interfaces can only be created with an instance through a launch template.
        instance_type = ec2.get_instance_type_output(instance_type=pool.type, region=site.region)
        template = ec2.LaunchTemplate(
            f"{name}-interfaces",
            network_interfaces=apply_check(
                pulumi.Output.all(
                    most=instance_type.efa_maximum_interfaces, subnet=network.subnet, group=network.group
                ),
                lambda facts: interfaces(pool.type, facts["most"] or 0, facts["subnet"], facts["group"]),
            ),
            region=site.region,
            tags=tags,
        )
        inputs["launch_template"] = {"id": template.id, "version": template.latest_version.apply(str)}
    return inputs


class AwsInstance(pulumi.ComponentResource):
    """One instance, as `host`, whose connection is verified with the host key that the machine creates.

    shared   the inputs that a pool's instances share, by pool
    """

    def __init__(
        self, site: AwsSite, node: AwsNode, network: AwsNetwork, shared: dict[str, dict[str, Any]], tags: dict[str, str]
    ) -> None:
        super().__init__("tailrack:aws:AwsInstance", node.name)
        opts = pulumi.ResourceOptions(parent=self, depends_on=network.way_out)
        shape = node.shape
        pool = shape if isinstance(shape, AwsPool) else None
        created_key = first_key(node.name, self)
        tags = {**tags, "Name": node.name}
        image = IMAGES.get(shape.image)
        inputs: dict[str, Any] = {
            "ami": _newest(site.region, shape, image) if image else shape.image,
            "user_data": created_key.apply(lambda key: user_data(site.login_key, key["private"], key["public"])),
            "root_block_device": {
                "volume_type": "gp3",
                "volume_size": shape.disk_gb,
                "encrypted": True,
                "delete_on_termination": True,
            },
            # Reading the user data needs a session token, which containers on the machine cannot get.
            "metadata_options": {
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            **_purchase_options(pool),
        }
        if pool:
            inputs |= shared[pool.name]
        if not (pool and pool.efa):
            inputs |= {
                "subnet_id": network.subnet,
                "vpc_security_group_ids": [network.group],
                "associate_public_ip_address": True,
            }
        instance = ec2.Instance(
            f"{node.name}-instance",
            instance_type=shape.type,
            region=site.region,
            tags=tags,
            volume_tags=tags,
            # Do not replace a machine because of a newer image or another first key.
            opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(ignore_changes=["ami", "userData"])),
            **inputs,
        )
        address: pulumi.Output[str] = instance.public_ip
        if pool and pool.efa:
            # EC2 gives no public address to an instance with several interfaces; an elastic IP names its interface.
            elastic_ip = ec2.Eip(
                f"{node.name}-address",
                domain="vpc",
                network_interface=instance.primary_network_interface_id,
                region=site.region,
                tags=tags,
                opts=opts,
            )
            address = elastic_ip.public_ip
        first = Connection(
            host=address,
            port=SSH_PORT,
            user=shape.user or (image.user if image else "ubuntu"),
            private_key=pulumi.Output.secret(site.private_key) if site.private_key else None,
            host_key=created_key.apply(lambda key: str(key["public"])),
        )
        # A replaced instance has another key.
        connection = own_key_connection(node.name, first, instance, instance.id, self)
        self.host = host_of(node, connection, deleted_with=instance)
        self.register_outputs({"address": address})


def _purchase_options(pool: AwsPool | None) -> dict[str, Any]:
    """Return EC2's inputs for the purchase option of an instance."""
    if pool is None or pool.market == "on-demand":
        return {}
    if pool.market == "spot":
        options = {"spot_instance_type": "one-time", "instance_interruption_behavior": "terminate"}
        return {"instance_market_options": {"market_type": "spot", "spot_options": options}}
    target = {"capacity_reservation_target": {"capacity_reservation_id": pool.reservation}}
    block = {"instance_market_options": {"market_type": "capacity-block"}} if pool.market == "capacity-block" else {}
    return {"capacity_reservation_specification": target, **block}


def _newest(region: str, shape: AwsHead | AwsPool, image: Image) -> pulumi.Output[str]:
    """Return the newest id of an image. The program stops if the image does not fit on the disk."""
    newest = ssm.get_parameter_output(image.parameter, region=region).value
    ami = ec2.get_ami_output(filters=[{"name": "image-id", "values": [newest]}], region=region)
    facts = pulumi.Output.all(
        id=ami.id, root_device_name=ami.root_device_name, block_device_mappings=ami.block_device_mappings
    )
    return apply_check(facts, partial(image_that_fits, shape.image, shape.disk_gb))
