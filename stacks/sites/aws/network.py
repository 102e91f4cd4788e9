"""The network of an aws site: the user's own subnet, or a VPC that is made; and what is let in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

import pulumi
from pulumi_aws import ec2

from stacks.sites.aws.model import AwsSite
from stacks.sites.aws.offers import zone_of

T = TypeVar("T")
WIREGUARD_PORT = 41641  # tailscaled's own, UDP
EVERYWHERE = "0.0.0.0/0"


class AwsNetwork(pulumi.ComponentResource):
    """A subnet and a security group.

    Let in: SSH from the site's `ssh_from`; WireGuard from everywhere, where nobody is answered who has no key; all from
    the group itself, which EFA needs both ways. Let out: all.

    types   of the instances that it is for: a subnet that is made lies where all of them are sold
    """

    def __init__(
        self,
        site: AwsSite,
        types: Collection[str],
        tags: dict[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:aws:AwsNetwork", site.name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        common: dict[str, Any] = {"region": site.region, "tags": {**tags, "Name": f"tailrack {site.name}"}}
        self.subnet: pulumi.Input[str]
        vpc: pulumi.Input[str]
        self.way_out: list[pulumi.Resource] = []
        if site.subnet and site.vpc:
            self.subnet, vpc = site.subnet, site.vpc
        else:
            made = ec2.Vpc(f"{site.name}-vpc", cidr_block=str(site.cidr), enable_dns_hostnames=True, opts=own, **common)
            gateway = ec2.InternetGateway(f"{site.name}-gateway", vpc_id=made.id, opts=own, **common)
            routes = ec2.RouteTable(
                f"{site.name}-routes",
                vpc_id=made.id,
                routes=[{"cidr_block": EVERYWHERE, "gateway_id": gateway.id}],
                opts=own,
                **common,
            )
            subnet = ec2.Subnet(
                f"{site.name}-subnet",
                vpc_id=made.id,
                cidr_block=str(site.cidr),
                availability_zone=_zone(site, types),
                map_public_ip_on_launch=True,
                # That a type is sold in one more zone by now is no reason to make all of it anew.
                opts=pulumi.ResourceOptions.merge(
                    own, pulumi.ResourceOptions(ignore_changes=None if site.zone else ["availabilityZone"])
                ),
                **common,
            )
            self.way_out = [
                ec2.RouteTableAssociation(
                    f"{site.name}-route", subnet_id=subnet.id, route_table_id=routes.id, region=site.region, opts=own
                )
            ]
            self.subnet, vpc = subnet.id, made.id
        group = ec2.SecurityGroup(
            f"{site.name}-group",
            description=f"tailrack site {site.name}: SSH from named networks, WireGuard, all among itself",
            vpc_id=vpc,
            ingress=[
                _rule("SSH", "tcp", 22, [str(network) for network in site.ssh_from]),
                _rule("WireGuard", "udp", WIREGUARD_PORT, [EVERYWHERE]),
                {"description": "among itself", "protocol": "-1", "from_port": 0, "to_port": 0, "self": True},
            ],
            egress=[
                {"description": "all", "protocol": "-1", "from_port": 0, "to_port": 0, "cidr_blocks": [EVERYWHERE]},
                {"description": "among itself", "protocol": "-1", "from_port": 0, "to_port": 0, "self": True},
            ],
            opts=own,
            **common,
        )
        self.group: pulumi.Output[str] = group.id
        self.register_outputs({"subnet": self.subnet, "group": self.group})


def _zone(site: AwsSite, types: Collection[str]) -> pulumi.Output[str]:
    offers = {
        kind: ec2.get_instance_type_offerings_output(
            location_type="availability-zone",
            filters=[{"name": "instance-type", "values": [kind]}],
            region=site.region,
        ).locations
        for kind in sorted(types)
    }
    return judged(pulumi.Output.all(**offers), partial(zone_of, site.region, site.zone))


def judged(answer: pulumi.Output[Any], judge: Callable[[Any], T]) -> pulumi.Output[T]:
    """What is made of an answer of EC2's. A ValueError ends the program with its words, in a preview too."""

    def made(known: Any) -> T:
        try:
            return judge(known)
        except ValueError as error:
            raise pulumi.RunError(str(error)) from None

    return answer.apply(made)


def _rule(description: str, protocol: str, port: int, networks: list[str]) -> Any:
    return {
        "description": description,
        "protocol": protocol,
        "from_port": port,
        "to_port": port,
        "cidr_blocks": networks,
    }
