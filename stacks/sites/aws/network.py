"""The network of an aws site: the user's subnet or a new VPC, and the security group."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

import pulumi
from pulumi_aws import ec2

from stacks.sites.aws.model import AwsSite
from stacks.sites.aws.offers import zone_of

T = TypeVar("T")
WIREGUARD_PORT = 41641  # tailscaled's UDP port
EVERYWHERE = "0.0.0.0/0"


class AwsNetwork(pulumi.ComponentResource):
    """A subnet and a security group.

    Incoming: SSH from the site's `ssh_from`, WireGuard from everywhere (it ignores unknown keys), and everything from
    the group itself, which EFA needs in both directions. Outgoing: everything.

    types   instance types of the site; a new subnet is in a zone that sells all of them
    """

    def __init__(self, site: AwsSite, types: Collection[str], tags: dict[str, str]) -> None:
        super().__init__("tailrack:aws:AwsNetwork", site.name)
        child = pulumi.ResourceOptions(parent=self)
        common: dict[str, Any] = {"region": site.region, "tags": {**tags, "Name": f"tailrack {site.name}"}}
        self.subnet: pulumi.Input[str]
        vpc: pulumi.Input[str]
        self.way_out: list[pulumi.Resource] = []
        if site.subnet and site.vpc:
            self.subnet, vpc = site.subnet, site.vpc
        else:
            new_vpc = ec2.Vpc(
                f"{site.name}-vpc", cidr_block=str(site.cidr), enable_dns_hostnames=True, opts=child, **common
            )
            gateway = ec2.InternetGateway(f"{site.name}-gateway", vpc_id=new_vpc.id, opts=child, **common)
            routes = ec2.RouteTable(
                f"{site.name}-routes",
                vpc_id=new_vpc.id,
                routes=[{"cidr_block": EVERYWHERE, "gateway_id": gateway.id}],
                opts=child,
                **common,
            )
            subnet = ec2.Subnet(
                f"{site.name}-subnet",
                vpc_id=new_vpc.id,
                cidr_block=str(site.cidr),
                availability_zone=_zone(site, types),
                map_public_ip_on_launch=True,
                # Do not replace the subnet when another zone starts to sell a type.
                opts=pulumi.ResourceOptions.merge(
                    child, pulumi.ResourceOptions(ignore_changes=None if site.zone else ["availabilityZone"])
                ),
                **common,
            )
            self.way_out = [
                ec2.RouteTableAssociation(
                    f"{site.name}-route", subnet_id=subnet.id, route_table_id=routes.id, region=site.region, opts=child
                )
            ]
            self.subnet, vpc = subnet.id, new_vpc.id
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
            opts=child,
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
    return apply_check(pulumi.Output.all(**offers), partial(zone_of, site.region, site.zone))


def apply_check(answer: pulumi.Output[Any], check: Callable[[Any], T]) -> pulumi.Output[T]:
    """Return the result of a check of EC2's answer. A ValueError stops the program, also in a preview."""

    def checked(facts: Any) -> T:
        try:
            return check(facts)
        except ValueError as error:
            raise pulumi.RunError(str(error)) from None

    return answer.apply(checked)


def _rule(description: str, protocol: str, port: int, networks: list[str]) -> Any:
    return {
        "description": description,
        "protocol": protocol,
        "from_port": port,
        "to_port": port,
        "cidr_blocks": networks,
    }
