"""Machines of kind `aws`: instances of EC2. The first connection to each is verified.

The program makes the host key that an instance is born with and hands it over in the user data. After the first contact
the machine has a key of its own, which is the one that everything else is held against.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pulumi
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from pulumi_aws import ec2, ssm
from pulumi_command import local

from components.host import Connection, Host, Machine
from components.roles.ssh_trust.facts import ed25519
from components.steps import composition
from components.steps.label import StepLabel
from components.steps.results import Answer
from components.steps.step import Step
from stacks import PROJECT
from stacks.sites.aws.efa import interfaces
from stacks.sites.aws.images import IMAGES, Image
from stacks.sites.aws.model import AwsHead, AwsNode, AwsPool, AwsSite
from stacks.sites.aws.network import AwsNetwork, judged
from stacks.sites.aws.offers import image_that_fits
from stacks.sites.aws.user_data import user_data
from stacks.sites.machines import Machines, host_of

SSH_PORT = 22


def machines(sites: Sequence[AwsSite], nodes: Sequence[AwsNode], stack: str) -> Machines:
    """The instances of all aws sites of the stack."""
    hosts: dict[str, Host] = {}
    for site in sites:
        tags = {**site.tags, "tailrack:stack": stack, "tailrack:site": site.name}
        here = [node for node in nodes if node.site == site.name]
        network = AwsNetwork(site, {node.shape.type for node in here}, tags)
        shared = {pool.name: _shared(site, pool, network, tags) for pool in site.pools}
        for node in here:
            hosts[node.name] = AwsInstance(site, node, network, shared, tags).as_host(node)
    return Machines(hosts)


def _shared(site: AwsSite, pool: AwsPool, network: AwsNetwork, tags: dict[str, str]) -> dict[str, Any]:
    """What the instances of a pool have in common, as inputs of each: a placement group, a launch template."""
    made: dict[str, Any] = {}
    name = f"{site.name}-{pool.name}"
    if pool.grouped:
        # They stand near one another.
        group = ec2.PlacementGroup(f"{name}-group", strategy="cluster", region=site.region, tags=tags)
        made["placement_group"] = group.name
    elif pool.placement_group.startswith("pg-"):
        made["placement_group_id"] = pool.placement_group
    if pool.efa:
        # The only way to have EFA interfaces made with the instance.
        has = ec2.get_instance_type_output(instance_type=pool.type, region=site.region)
        template = ec2.LaunchTemplate(
            f"{name}-interfaces",
            network_interfaces=judged(
                pulumi.Output.all(most=has.efa_maximum_interfaces, subnet=network.subnet, group=network.group),
                lambda known: interfaces(pool.type, known["most"] or 0, known["subnet"], known["group"]),
            ),
            region=site.region,
            tags=tags,
        )
        made["launch_template"] = {"id": template.id, "version": template.latest_version.apply(str)}
    return made


class AwsInstance(pulumi.ComponentResource):
    """One instance, and the way in.

    shared       by pool, what its instances have in common
    instance     the resource whose deletion takes the machine away
    connection   over the key that the machine has made for itself
    """

    def __init__(
        self,
        site: AwsSite,
        node: AwsNode,
        network: AwsNetwork,
        shared: dict[str, dict[str, Any]],
        tags: dict[str, str],
    ) -> None:
        super().__init__("tailrack:aws:AwsInstance", node.name, None, None)
        own = pulumi.ResourceOptions(parent=self, depends_on=network.way_out)
        shape = node.shape
        pool = shape if isinstance(shape, AwsPool) else None
        file = site.private_key_file
        private_key = file.read_text(encoding="utf-8") if file else None
        login_key = _public_half(private_key) if private_key else str(site.public_key)
        born_with = self._born_with(node.name)
        tags = {**tags, "Name": node.name}
        image = IMAGES.get(shape.image)
        how: dict[str, Any] = {
            "ami": _newest(site.region, shape, image) if image else shape.image,
            "user_data": born_with.apply(partial(_user_data, login_key)),
            "root_block_device": {
                "volume_type": "gp3",
                "volume_size": shape.disk_gb,
                "encrypted": True,
                "delete_on_termination": True,
            },
            # Without a session's token nobody reads the user data, and nothing behind the machine (a container) can.
            "metadata_options": {
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            **_bought(pool),
        }
        if pool:
            how |= shared[pool.name]
        if not (pool and pool.efa):
            how |= {
                "subnet_id": network.subnet,
                "vpc_security_group_ids": [network.group],
                "associate_public_ip_address": True,
            }
        self.instance = ec2.Instance(
            f"{node.name}-instance",
            instance_type=shape.type,
            region=site.region,
            tags=tags,
            volume_tags=tags,
            # A newer image or another first key is no reason to make a machine anew.
            opts=pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(ignore_changes=["ami", "userData"])),
            **how,
        )
        address: pulumi.Output[str] = self.instance.public_ip
        if pool and pool.efa:
            # EC2 gives no public address to an instance with several interfaces, and wants to know which one it is for.
            fixed = ec2.Eip(
                f"{node.name}-address",
                domain="vpc",
                network_interface=self.instance.primary_network_interface_id,
                region=site.region,
                tags=tags,
                opts=own,
            )
            address = fixed.public_ip
        first = Connection(
            host=address,
            port=SSH_PORT,
            user=shape.user or (image.user if image else "ubuntu"),
            private_key=pulumi.Output.secret(private_key) if private_key else None,
            host_key=born_with.apply(lambda key: str(key["public"])),
        )
        key = Step(
            f"{node.name}-host-key",
            Machine(node.name, first, self.instance),
            composition.single(Path(__file__).with_name("host_key.sh")),
            {},
            label=f"{node.name}: create its host key",
            answer=Answer({"host_key": ed25519}, needed=True),
            parent=self,
            # One that comes in the place of a lost one has another key.
            once=self.instance.id,
        )
        self.connection = Connection(first.host, first.port, first.user, first.private_key, key.result["host_key"])
        self.register_outputs({"address": address})

    def as_host(self, node: AwsNode) -> Host:
        """Return it as a Host."""
        return host_of(node, self.connection, deleted_with=self.instance)

    def _born_with(self, name: str) -> pulumi.Output[dict[str, str]]:
        label = StepLabel(f"{name}-first-key", "", f"{name}: create a host key for the first connection")
        python = shlex.quote(str(Path(sys.prefix, "bin", "python")))
        made = local.Command(
            f"{name}-first-key",
            create=label.on(f"exec {python} -m stacks.sites.aws.new_host_key"),
            dir=str(PROJECT),
            logging=local.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, additional_secret_outputs=["stdout", "stderr"], ignore_changes=["create", "dir"]
            ),
        )
        secret: pulumi.Output[str] = pulumi.Output.secret(made.stdout)
        return secret.apply(json.loads)


def _bought(pool: AwsPool | None) -> dict[str, Any]:
    """How an instance is paid for, in EC2's words."""
    if pool is None or pool.market == "on-demand":
        return {}
    if pool.market == "spot":
        options = {"spot_instance_type": "one-time", "instance_interruption_behavior": "terminate"}
        return {"instance_market_options": {"market_type": "spot", "spot_options": options}}
    taken = {"capacity_reservation_target": {"capacity_reservation_id": pool.reservation}}
    block = {"instance_market_options": {"market_type": "capacity-block"}} if pool.market == "capacity-block" else {}
    return {"capacity_reservation_specification": taken, **block}


def _newest(region: str, shape: AwsHead | AwsPool, image: Image) -> pulumi.Output[str]:
    """The newest id of an image, which fits on the disk."""
    newest = ssm.get_parameter_output(image.parameter, region=region).value
    found = ec2.get_ami_output(filters=[{"name": "image-id", "values": [newest]}], region=region)
    known = pulumi.Output.all(
        id=found.id, root_device_name=found.root_device_name, block_device_mappings=found.block_device_mappings
    )
    return judged(known, partial(image_that_fits, shape.image, shape.disk_gb))


def _public_half(private_key: str) -> str:
    key = load_ssh_private_key(private_key.encode(), None).public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _user_data(login_key: str, born_with: dict[str, str]) -> str:
    return user_data(login_key, born_with["private"], born_with["public"])
