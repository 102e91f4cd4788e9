"""Settings of a site in one AWS region, and the nodes of that site."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from components.settings.cluster import Head
from components.settings.money import Price
from components.settings.problems import Report, Stack, show_name
from components.settings.rules import check_both, check_kinds
from components.settings.section import Section, key
from components.settings.types import Network, OwnNetwork, Whole, must
from stacks.sites.aws.images import IMAGES, Image, image_for
from stacks.sites.aws.instance_keys import DiskSize, ImageWord, InstanceType
from stacks.sites.aws.instance_types import has_nvidia_gpus, is_arm, stands_close
from stacks.sites.hosts.ssh_types import Login
from stacks.sites.kind import NodeSpec
from stacks.sites.login_key import SiteOfNewMachines
from stacks.sites.pools import GpuPool, check_not_empty, new_nodes

_RESERVED = ("capacity-block", "reservation")
_CIDR = ipaddress.IPv4Network("10.64.0.0/20")
_AWS_OWN = 5  # addresses that AWS reserves in each subnet
_RAISE_QUOTA = (  # EC2-VPC Elastic IPs
    "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-0263D0A3 "
    "--region {region} --desired-value {count}"
)

_ID = "-[0-9a-f]{8,17}"
Vpc = Annotated[
    OwnNetwork,
    must(
        lambda own: 16 <= own.prefixlen <= 28 and own.is_private,
        "is not a private network of /16 to /28, as a VPC needs",
    ),
]
Door = Annotated[
    Network,
    must(
        lambda door: door.prefixlen >= 8,
        "opens SSH to a large part of the internet",
        "anyone could try to log in to every node",
        "write the addresses from which you run `up`, such as 203.0.113.7/32",
    ),
]


class AwsShape(Section):
    """An EC2 instance."""

    type: InstanceType = "t3.large"
    image: ImageWord = key(default_factory=lambda shape: image_for(shape["type"]))
    user: Login | None = None
    """The image's account for log-ins; default: the account of the named image, or ubuntu for an id."""
    disk_gb: DiskSize = 100

    def check_image(self, report: Report) -> Image | None:
        """Return the named image, if it is one. Report one that the instance type cannot boot."""
        image = IMAGES.get(self.image)
        if image and is_arm(self.type):
            problem = f"{self.image} is for amd64, but {report.value(report.at(self), self.type)} is arm64"
            report.add((self, "image"), problem, "it would not boot", "write an image for arm64, or another type")
        return image


class AwsHead(AwsShape):
    """The head node's instance, if it is at this site."""

    price_per_hour: Price | None = None
    """Price per hour of the instance, in the stack's `currency`; default: the site's price."""


class AwsPool(GpuPool, AwsShape):
    """A pool of instances."""

    type: InstanceType
    market: Literal["on-demand", "spot", "capacity-block", "reservation"] = "on-demand"
    """Purchase option: `on-demand`, `spot` (AWS can take it back at any time), `capacity-block` or `reservation`."""
    reservation: str | None = key("a cr- id", "copy the id from the console", pattern=f"^cr{_ID}$", default=None)
    """Id of the capacity block or reservation to use."""
    placement_group: str = key("auto, none or a pg- id", "write one", pattern=f"^(auto|none|pg{_ID})$", default="auto")
    """Placement group: `auto` creates one where it is possible; `none`; or the id of your own group."""
    efa: bool = False
    """Create as many EFA interfaces as the type has, in AWS's layout; each node then needs an elastic IP."""

    @property
    def grouped(self) -> bool:
        """Whether the stack creates a placement group. Capacity blocks and reservations have their own or none."""
        return self.placement_group == "auto" and self.count > 1 and not self.reserved and stands_close(self.type)

    @property
    def reserved(self) -> bool:
        """Whether its machines are in a capacity block or a reservation."""
        return self.market in _RESERVED

    def check(self, stack: Stack, report: Report) -> None:
        breaks, required = "you would pay for the reservation and not use it", "EC2 would not know which one"
        check_kinds(self, self.market, {"reservation": _RESERVED}, breaks, report, "market", required)
        if self.market == "capacity-block" and self.placement_group.startswith("pg-"):
            problem, breaks = "is set for a capacity block", "it has its own placement, and EC2 rejects another"
            report.add((self, "placement_group"), problem, breaks, "remove it")
        image, breaks = self.check_image(report), "the check step would fail after machines have started to cost money"
        if self.gpu and image and not has_nvidia_gpus(self.type):
            problem = f"{report.value(report.at(self), self.type)} has no GPU that this image supports"
            fix = "write a type with NVIDIA GPUs, or leave gpu out; for others, write an image id with their driver"
            report.add((self, "gpu"), problem, breaks, fix)
        elif self.gpu and image and not image.driver:
            fix = "leave image out (deep-learning), or write the id of an image with the driver"
            report.add((self, "image"), f"{self.image} has no NVIDIA driver, but gpu expects GPUs", breaks, fix)


class AwsSite(SiteOfNewMachines):
    """A site in one AWS region."""

    kind: Literal["aws"]
    """EC2 instances, created and deleted with the stack."""
    region: str = key("a region's name", "write one such as us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")
    """The region."""
    zone: str | None = key("a letter", "write e.g. a", "", "the first with all types", pattern="^[a-z]$", default=None)
    """Letter of the availability zone of all nodes; default: the first that sells all of the site's types."""
    ssh_from: tuple[Door, ...] = key("a list of networks", "write your public address, with /32", min_length=1)
    """Networks that may connect by SSH; `up` must run in one of them."""
    subnet: str | None = key("a subnet- id", "write it, or leave it out", pattern=f"^subnet{_ID}$", default=None)
    """Id of your own subnet with internet access; default: the stack creates a VPC."""
    vpc: str | None = key("an id such as vpc-0123456789abc", "write its id", pattern=f"^vpc{_ID}$", default=None)
    """Id of the VPC of that subnet."""
    cidr: Vpc = key("a private network such as 10.64.0.0/20", "write one of /16 to /28", default=_CIDR)
    """Network of the VPC that the stack creates."""
    elastic_ips: Whole = key(ge=1, le=10_000, default=5)
    """Elastic IPs that your account may have in the region (AWS's default is 5); each node with EFA needs one."""
    pools: tuple[AwsPool, ...] = key(fix="write [{name: p, type: p5.48xlarge}]", default=())
    """The site's nodes; may be empty at the head node's site."""
    head: AwsHead = AwsHead()
    tags: dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=256)]] = key(
        "a mapping of words", "write {team: vision}", default={}
    )
    """Tags for everything that the stack creates."""

    def check(self, stack: Stack, report: Report) -> None:
        super().check(stack, report)
        check_not_empty(self, self.pools, stack, report)
        check_both(self, "subnet", "vpc", "instances and their rules would be in two networks", report)
        needed, most = len(nodes(self, stack.head)), self.cidr.num_addresses - _AWS_OWN
        for name in sorted({"zone", "cidr"} & self.model_fields_set) if self.subnet is not None else ():
            problem, fix = f"is set, but the subnet has its own {name}", f"remove {name}, or remove subnet and vpc"
            report.add((self, name), problem, "it would have no effect", fix)
        if self.subnet is None and needed > most:
            problem, fix = f"has {most} addresses, but the site has {needed} nodes", "write a larger one, such as /20"
            report.bad((self, "cidr"), problem, "EC2 could not create the last ones", fix)
        for pool in self.pools:
            if pool.reserved and self.zone is None and self.subnet is None:
                problem = f"is missing, but pool {show_name(pool.name)} uses a reservation"
                report.add((self, "zone"), problem, "the nodes might be in another zone", "write its zone's letter")
        if stack.head.site == self.name:
            self.head.check_image(report)
        sites = [site for site in stack.of_kind[self.kind] if site.region == self.region]
        needed = sum(pool.count for site in sites for pool in site.pools if pool.efa)
        if self is sites[0] and needed > (most := max(site.elastic_ips for site in sites)):
            path = report.at(self, "elastic_ips")
            limit, region = report.value(path, most), report.value(path, self.region)
            problem = f"{limit} is too low: {needed} nodes with EFA in {region} need one each"
            breaks = "EC2 would reject the rest after their machines have started to cost money"
            fix = f"run: {_RAISE_QUOTA.format(region=self.region, count=needed)}; when AWS grants it, write {needed}"
            report.add(path, problem, breaks, fix)


@dataclass(frozen=True)
class AwsNode(NodeSpec):
    """An EC2 instance; `shape` is its pool, or the head node's section."""

    shape: AwsPool | AwsHead


def nodes(site: AwsSite, head: Head) -> list[AwsNode]:
    """Return the nodes of the site, the head node first."""
    of_head, spot = {"price": site.head.price_per_hour, "shape": site.head}, {"spot": "aws"}

    def of_pool(pool: AwsPool) -> dict[str, object]:
        return {"shape": pool, "spot": spot.get(pool.market, "")}

    return new_nodes(AwsNode, site, head, of_head, site.pools, of_pool)
