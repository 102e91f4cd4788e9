"""A site in one region of AWS: its network, its pools, and the nodes that it gives."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.network_names import TAILNET
from components.settings.section import Section, key, named, number, yes_no
from components.settings.ssh_keys import public_key
from components.settings.types import Feature, GpuText, Whole, refuse
from stacks.sites.aws.instance_keys import ImageWord, InstanceType, disk_key, image_key, type_key, user_key
from stacks.sites.aws.instance_types import stands_close
from stacks.sites.hosts.ssh_types import KeyFile, Login
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key
from stacks.sites.pools import MOST_NODES, PoolName, pool_node_names

Market = Literal["on-demand", "spot", "capacity-block", "reservation"]


def _placement_group(value: str) -> str:
    if value not in ("auto", "none") and not re.fullmatch(r"pg-[0-9a-f]{8,17}", value):
        refuse("is neither auto nor none nor a pg- id")
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
        refuse(f"overlaps {TAILNET}, the tailnet's own range")
    if not 16 <= network.prefixlen <= 28 or not network.is_private:
        refuse("is not a private network of /16 to /28, which is what a VPC has")
    return network


def _door(value: object) -> object:
    network = _network(value)
    if network.prefixlen < 8:
        refuse(
            "opens SSH to a great part of the world",
            "everybody could try to log in to every node",
            "write the addresses from which `up` is run, such as 203.0.113.7/32",
        )
    return network


def _public_key(value: str) -> str:
    """'TYPE BASE64' with any comment dropped."""
    return public_key(value, "public key", "public key of type ed25519 or ecdsa")


def _id(kind: str) -> Any:
    return AfterValidator(
        lambda value: value if re.fullmatch(rf"{kind}-[0-9a-f]{{8,17}}", value) else refuse(f"is not a {kind}- id")
    )


PublicKey = Annotated[str, AfterValidator(_public_key)]
Door = Annotated[ipaddress.IPv4Network, BeforeValidator(_door)]


class AwsHead(Section):
    """The head node, where it stands at this site."""

    type: InstanceType = type_key(default="t3.large")
    image: ImageWord = image_key()
    user: Login | None = user_key()
    disk_gb: Whole = disk_key()
    price_per_hour: Price | None = price_key("the instance costs an hour; left out, the site's")


class AwsPool(Section):
    """Like nodes of an aws site: name1, name2, ... up to count."""

    name: PoolName = named(
        "the nodes' name without their number, at most 59 characters",
        breaks="its nodes are called by it, with 1, 2, ... after it",
        fix="write a name such as p5-",
    )
    count: Whole = number(
        "how many nodes",
        1,
        MOST_NODES,
        breaks="the pool would have no nodes",
        fix="write 1 or more, or delete the pool",
        default=1,
    )
    type: InstanceType = type_key()
    image: ImageWord = image_key()
    user: Login | None = user_key()
    disk_gb: Whole = disk_key()
    market: Market = key(
        "how it is paid: `on-demand`, `spot` (may be taken away at any time), `capacity-block` or `reservation`",
        wants="on-demand, spot, capacity-block or reservation",
        breaks="EC2 would not know how to bill it",
        fix="write one of the four",
        default="on-demand",
    )
    reservation: Annotated[str, _id("cr")] | None = key(
        "id of the capacity block or reservation that the nodes are taken from",
        wants="an id such as cr-0123456789abcdef0",
        breaks="EC2 would take other capacity",
        fix="write the id from the console",
        default=None,
    )
    placement_group: Annotated[str, AfterValidator(_placement_group)] = key(
        "where they stand: `auto`, near one another in a group that is made, where there are several, their type can "
        "be in one and no reservation says where; `none`; or the id of a group of yours, such as that in which a "
        "reservation was made",
        wants="auto, none or an id such as pg-0123456789abcdef0",
        breaks="EC2 would not know where to put them",
        fix="write one of them",
        default="auto",
    )
    efa: bool = yes_no(
        "as many EFA interfaces as the type has, in AWS's own layout; each node has an elastic IP then", False
    )
    gpu: GpuText | None = key(
        "each node's GPUs, `kind:count`, which the check step compares with what is there",
        wants="a GPU kind and a count such as h100:8",
        breaks="Slurm would give the node's GPUs to nobody",
        fix="write KIND:COUNT, or leave gpu out",
        default=None,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of each node, for `--constraint`")
    price_per_hour: Price | None = price_key("each node costs an hour, by its `market`; left out, the site's")

    @property
    def grouped(self) -> bool:
        """Whether a placement group is made for it. A capacity block, or a reservation, has its own or none."""
        free = self.market in ("on-demand", "spot")
        return self.placement_group == "auto" and self.count > 1 and free and stands_close(self.type)


class AwsSite(Site):
    """A site in one region of AWS."""

    kind: Literal["aws"] = kind_key("aws", "instances of EC2, made and removed with the stack")
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")] = key(
        "the region",
        wants="a region's name",
        breaks="nobody knows where to start instances",
        fix="write one such as us-east-1",
    )
    zone: Annotated[str, Field(pattern=r"^[a-z]$")] | None = key(
        "the letter of the availability zone; left out, the first that sells all of its types. Nodes of one site stand "
        "in one zone",
        wants="a letter such as a",
        breaks="a capacity block is in one zone alone",
        fix="write its letter",
        otherwise="the first that sells its types",
        default=None,
    )
    ssh_from: tuple[Door, ...] = key(
        "networks from which SSH is let in, those that `up` runs in",
        wants="a list of one network or more such as [203.0.113.7/32]",
        breaks="no step could log in, or everybody could try",
        fix="write the address that AWS sees of you, with /32",
        min_length=1,
    )
    private_key_file: KeyFile | None = key(
        "private key for the log-in; the instances are given its public half. This or `agent`",
        wants="a path of a private key file",
        breaks="the program could not log in",
        fix="write the path of a key of yours, such as ~/.ssh/id_ed25519",
        default=None,
    )
    agent: bool = yes_no("the key is in the ssh-agent of whoever runs this, in the place of a key file", False)
    public_key: PublicKey | None = key(
        "with `agent`: the key's public half, which the instances are given",
        wants="a public key such as 'ssh-ed25519 AAAA...'",
        breaks="nobody could log in",
        fix="write the line that `ssh-add -L` prints",
        default=None,
    )
    subnet: Annotated[str, _id("subnet")] | None = key(
        "id of a subnet of yours with a way to the internet; left out, a VPC is made",
        wants="an id such as subnet-0123456789abcdef0",
        breaks="the instances would have no network",
        fix="write the id, or leave it out",
        default=None,
    )
    vpc: Annotated[str, _id("vpc")] | None = key(
        "id of the VPC that the subnet is in",
        wants="an id such as vpc-0123456789abcdef0",
        breaks="the security group would have no place",
        fix="write the id with subnet",
        default=None,
    )
    cidr: Annotated[ipaddress.IPv4Network, BeforeValidator(_own_network)] = key(
        "network of the VPC that is made",
        wants="a private network such as 10.64.0.0/20",
        breaks="the VPC could not be made",
        fix="write one of /16 to /28",
        otherwise="`10.64.0.0/20`",
        default=ipaddress.IPv4Network("10.64.0.0/20"),
    )
    elastic_ips: Whole = number(
        "how many elastic IPs the account may have in the region (AWS gives 5 unasked); nodes with EFA need one each",
        1,
        10_000,
        breaks="EC2 would refuse addresses while the machines are paid",
        default=5,
    )
    pools: tuple[AwsPool, ...] = key(
        "the site's nodes; may be empty where the head node stands",
        wants="a list of pools",
        breaks="the site would have no nodes",
        fix="write [{name: p, type: p5.48xlarge}]",
        default=(),
    )
    head: AwsHead = key("the head node's instance, where it stands here", default=AwsHead())
    tags: dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=256)]] = key(
        "tags of everything that is made",
        wants="a mapping of words",
        breaks="nobody could say whose costs these are",
        fix="write {team: vision}",
        default={},
    )


@dataclass(frozen=True)
class AwsNode(NodeSpec):
    """An instance; `shape` says all that its pool does, or the head node's section."""

    shape: AwsPool | AwsHead


def nodes(site: AwsSite, head: Head) -> list[AwsNode]:
    """The nodes of the site, the head node first."""
    here = (
        [AwsNode.of(site, head, head.name, price=site.head.price_per_hour, shape=site.head)]
        if head.site == site.name
        else []
    )
    return here + [
        AwsNode.of(site, head, name, pool.features, pool.gpu, price=pool.price_per_hour, shape=pool)
        for pool in site.pools
        for name in pool_node_names(pool.name, pool.count)
    ]
