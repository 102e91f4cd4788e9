"""Settings of a site in one AWS region, and the nodes of that site."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.network_names import TAILNET
from components.settings.section import Section, key, number, yes_no
from components.settings.types import Feature, GpuText, Whole, refuse
from stacks.sites.aws.instance_keys import ImageWord, InstanceType, disk_key, image_key, type_key, user_key
from stacks.sites.aws.instance_types import stands_close
from stacks.sites.hosts.ssh_types import KeyFile, Login
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key
from stacks.sites.login_key import PublicKey, private_key_file_key, public_key_key
from stacks.sites.pools import PoolName, new_nodes, pool_count_key, pool_gpu_key, pool_name_key

Market = Literal["on-demand", "spot", "capacity-block", "reservation"]


def _placement_group(value: str) -> str:
    if value not in ("auto", "none") and not re.fullmatch(r"pg-[0-9a-f]{8,17}", value):
        refuse("is not auto, none or a pg- id")
    return value


def _network(value: object) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(value) if isinstance(value, str) and "/" in value else None
    except ValueError:
        network = None
    if network is None:
        refuse("is not an IPv4 network with its prefix length and no host bits")
    return network


def _own_network(value: object) -> object:
    network = _network(value)
    if network.overlaps(TAILNET):
        refuse(f"overlaps {TAILNET}, the range of the tailnet")
    if not 16 <= network.prefixlen <= 28 or not network.is_private:
        refuse("is not a private network of /16 to /28, as a VPC needs")
    return network


def _door(value: object) -> object:
    network = _network(value)
    if network.prefixlen < 8:
        refuse(
            "opens SSH to a large part of the internet",
            "anyone could try to log in to every node",
            "write the addresses from which you run `up`, such as 203.0.113.7/32",
        )
    return network


def _id(kind: str) -> Any:
    return AfterValidator(
        lambda value: value if re.fullmatch(rf"{kind}-[0-9a-f]{{8,17}}", value) else refuse(f"is not a {kind}- id")
    )


Door = Annotated[ipaddress.IPv4Network, BeforeValidator(_door)]


class AwsHead(Section):
    """The head node's instance, if it is at this site."""

    type: InstanceType = type_key(default="t3.large")
    image: ImageWord = image_key()
    user: Login | None = user_key()
    disk_gb: Whole = disk_key()
    price_per_hour: Price | None = price_key("the instance (default: the site's price)")


class AwsPool(Section):
    """A pool of similar nodes at an aws site: name1, name2, ... up to count."""

    name: PoolName = pool_name_key("p5-")
    count: Whole = pool_count_key()
    type: InstanceType = type_key()
    image: ImageWord = image_key()
    user: Login | None = user_key()
    disk_gb: Whole = disk_key()
    market: Market = key(
        "purchase option: `on-demand`, `spot` (AWS can take it back at any time), `capacity-block` or `reservation`",
        wants="on-demand, spot, capacity-block or reservation",
        breaks="EC2 could not bill it",
        fix="write one of the four",
        default="on-demand",
    )
    reservation: Annotated[str, _id("cr")] | None = key(
        "id of the capacity block or reservation to use",
        wants="an id such as cr-0123456789abcdef0",
        breaks="EC2 would use other capacity",
        fix="copy the id from the console",
        default=None,
    )
    placement_group: Annotated[str, AfterValidator(_placement_group)] = key(
        "placement group: `auto` creates one if there are several nodes, their type supports it and they use no "
        "reservation; `none`; or the id of your own group, such as the one of a reservation",
        wants="auto, none or an id such as pg-0123456789abcdef0",
        breaks="EC2 could not place the instances",
        fix="write one of them",
        default="auto",
    )
    efa: bool = yes_no(
        "create as many EFA interfaces as the type has, in AWS's layout; each node then needs an elastic IP", False
    )
    gpu: GpuText | None = pool_gpu_key()
    features: tuple[Feature, ...] = features_key("Slurm features of each node, for `--constraint`")
    price_per_hour: Price | None = price_key("each node, for its `market` (default: the site's price)")

    @property
    def grouped(self) -> bool:
        """Whether the stack creates a placement group. Capacity blocks and reservations have their own or none."""
        free = self.market in ("on-demand", "spot")
        return self.placement_group == "auto" and self.count > 1 and free and stands_close(self.type)


class AwsSite(Site):
    """A site in one AWS region."""

    kind: Literal["aws"] = kind_key("aws", "EC2 instances, created and deleted with the stack")
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")] = key(
        "the region",
        wants="a region's name",
        breaks="EC2 could not start instances",
        fix="write one such as us-east-1",
    )
    zone: Annotated[str, Field(pattern=r"^[a-z]$")] | None = key(
        "letter of the availability zone; default: the first that sells all of the site's types. All nodes of a site "
        "are in one zone",
        wants="a letter such as a",
        breaks="a capacity block is only in one zone",
        fix="write its letter",
        default_text="the first that sells its types",
        default=None,
    )
    ssh_from: tuple[Door, ...] = key(
        "networks that may connect by SSH; `up` must run in one of them",
        wants="a list of one network or more such as [203.0.113.7/32]",
        breaks="no step could log in, or anyone could try",
        fix="write your public address, with /32",
        min_length=1,
    )
    private_key_file: KeyFile | None = private_key_file_key("instances")
    agent: bool = yes_no("use a key in your ssh-agent instead of a key file", False)
    public_key: PublicKey | None = public_key_key("instances")
    subnet: Annotated[str, _id("subnet")] | None = key(
        "id of your own subnet with internet access; default: the stack creates a VPC",
        wants="an id such as subnet-0123456789abcdef0",
        breaks="the instances would have no network",
        fix="write the id, or leave it out",
        default=None,
    )
    vpc: Annotated[str, _id("vpc")] | None = key(
        "id of the VPC of that subnet",
        wants="an id such as vpc-0123456789abcdef0",
        breaks="the security group could not be created",
        fix="write the id with subnet",
        default=None,
    )
    cidr: Annotated[ipaddress.IPv4Network, BeforeValidator(_own_network)] = key(
        "network of the VPC that the stack creates",
        wants="a private network such as 10.64.0.0/20",
        breaks="the VPC could not be created",
        fix="write one of /16 to /28",
        default_text="`10.64.0.0/20`",
        default=ipaddress.IPv4Network("10.64.0.0/20"),
    )
    elastic_ips: Whole = number(
        "elastic IPs that your account may have in the region (AWS's default is 5); each node with EFA needs one",
        1,
        10_000,
        breaks="EC2 would reject addresses after the machines have started to cost money",
        default=5,
    )
    pools: tuple[AwsPool, ...] = key(
        "the site's nodes; may be empty at the head node's site",
        wants="a list of pools",
        breaks="the site would have no nodes",
        fix="write [{name: p, type: p5.48xlarge}]",
        default=(),
    )
    head: AwsHead = key("the head node's instance, if it is at this site", default=AwsHead())
    tags: dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=256)]] = key(
        "tags for everything that the stack creates",
        wants="a mapping of words",
        breaks="you could not attribute the costs",
        fix="write {team: vision}",
        default={},
    )


@dataclass(frozen=True)
class AwsNode(NodeSpec):
    """An EC2 instance; `shape` is its pool, or the head node's section."""

    shape: AwsPool | AwsHead


def nodes(site: AwsSite, head: Head) -> list[AwsNode]:
    """Return the nodes of the site, the head node first."""
    return new_nodes(
        AwsNode,
        site,
        head,
        {"price": site.head.price_per_hour, "shape": site.head},
        site.pools,
        lambda pool: {"shape": pool, "spot": "aws" if pool.market == "spot" else ""},
    )
