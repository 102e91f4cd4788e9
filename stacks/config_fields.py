"""The stack config as models: every key, its kind, its default, and what it says when it is wrong.

Checks that look at one value are in `config_types`; those that compare values are in `config_checks`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from components.validation.sizes import parse_size, sizes_between
from stacks.config_problems import Says
from stacks.config_types import (
    Address,
    AuthKey,
    ControlUrl,
    Feature,
    Folder,
    FreeText,
    GpuText,
    HostKey,
    Id,
    KeyFile,
    NodeName,
    Number,
    PartitionName,
    PoolName,
    Setting,
    SiteName,
    Size,
    Subnet,
    TimeLimit,
    UserName,
    Whole,
    name_says,
)

_CLASH = "Slurm, the tailnet and every job know it by this name"
_FEATURES = Says(
    "a list of words such as [nvme, ib]",
    "jobs could not ask for these nodes with --constraint",
    "write letters, digits, '_', '.' and '-', a letter first",
)
_YES_NO = Says("true or false", "it would be left open", "write true or false without quotes")


class Section(BaseModel):
    """A mapping in the stack config: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _size_says(breaks: str, otherwise: str = "") -> Says:
    return Says(
        "a size in bytes such as 64K, 4M or 8G",
        breaks,
        "write digits and one of K, M, G (powers of 1024)",
        otherwise=otherwise,
    )


def _count_says(least: int, most: int, breaks: str) -> Says:
    return Says(f"a whole number from {least} to {most}", breaks, f"write {least} or more")


class Cluster(Section):
    """The cluster as a whole."""

    name: Annotated[
        PartitionName,
        Field(max_length=40),
        name_says("Slurm files its state and its accounts under this name", "write a name such as lab"),
    ] = Field(description="Slurm's ClusterName; keep it for the life of the cluster, at most 40 characters")

    munge_generation: Annotated[
        FreeText,
        Field(min_length=1),
        Says("a short text", "a change of it makes a new munge key", 'write any text, such as "2"'),
    ] = Field(default="1", description="change this text to give every node a new munge key")


class Head(Section):
    """The head node: slurmctld, the share, and the place to log in."""

    name: Annotated[NodeName, name_says(_CLASH, "write a name such as head")] = Field(
        default="head",
        description="the head node's name; at a `lab` site one more container, at a `hosts` site one of its hosts",
    )
    site: Annotated[
        str,
        Says("the name of a site", "the head node would be nowhere", "write the name of one of the sites"),
    ] = Field(description="the site that the head node stands at")
    compute: Annotated[bool, _YES_NO] = Field(default=False, description="run jobs on the head node too")


class LabPool(Section):
    """Like nodes of a lab site: name1, name2, ... up to count."""

    name: Annotated[
        PoolName, name_says("its nodes are called by it, with 1, 2, ... after it", "write a name such as a")
    ] = Field(description="the nodes' name without their number, at most 59 characters")
    count: Annotated[
        Whole,
        Field(ge=1, le=1000),  # a Linux bridge has 1,023 ports
        Says(
            "a whole number from 1 to 1000",
            "the pool would have no nodes, or more than one bridge network takes",
            "write 1 or more, or delete the pool",
        ),
    ] = Field(default=1, description="how many nodes")
    features: Annotated[tuple[Feature, ...], _FEATURES] = Field(
        default=(), description="Slurm features of each node, for `--constraint`"
    )
    bare: Annotated[bool, _YES_NO] = Field(
        default=False, description="start from an image without Slurm's packages, as a new machine would"
    )


class HostConfig(Section):
    """A machine of yours, reached by SSH."""

    name: Annotated[NodeName, name_says(_CLASH, "write a name such as gpu-box or dgx1")] = Field(
        description="the node's name in Slurm and in the tailnet"
    )
    address: Annotated[
        Address,
        Says("an IP address or host name", "the program could not log in", "write what you would give to ssh"),
    ] = Field(description="IP address or host name for SSH from this machine")
    port: Annotated[
        Whole,
        Field(ge=1, le=65535),
        Says("a port, 1 to 65535", "the program could not log in", "write sshd's port, most often 22"),
    ] = Field(default=22, description="sshd's port")
    user: Annotated[
        str,
        Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$"),
        Says("an account's name", "the program could not log in", "write root or an account with sudo"),
    ] = Field(description="the account to log in with: root, or one with password-less sudo")
    private_key_file: Annotated[
        KeyFile,
        Says(
            "a path of a private key file",
            "the program could not log in to this host",
            "write the path of the key that opens it, such as ~/.ssh/id_ed25519",
        ),
    ] = Field(description="private key for the log-in; `~` and paths relative to the config are understood")
    host_key: Annotated[
        HostKey,
        Says(
            "a public host key such as 'ssh-ed25519 AAAA...'",
            "any machine on the way could pose as this host and be given the cluster's keys",
            "write what `ssh-keyscan -t ed25519 ADDRESS` prints after the address, once you have compared it "
            "with /etc/ssh/ssh_host_ed25519_key.pub on the host",
        ),
    ] = Field(description="the host's public key, pinned")
    gpu: Annotated[
        GpuText | None,
        Says(
            "a GPU kind and a count such as h200:8",
            "Slurm would give the node's GPUs to nobody",
            "write KIND:COUNT (KIND in lowercase letters, digits and hyphens), or leave gpu out",
        ),
    ] = Field(default=None, description="the node's GPUs, `kind:count`; each kind gets a partition of its name")
    features: Annotated[tuple[Feature, ...], _FEATURES] = Field(
        default=(), description="Slurm features of the node, for `--constraint`"
    )


class Site(Section):
    """What every kind of site has."""

    name: Annotated[
        SiteName,
        name_says("it is the name of the site's partition and floor too", "write a name such as cloud-a"),
    ] = Field(description="a site is a failure and a bandwidth domain, and a partition of this name")


class LabSite(Site):
    """A site of containers on this machine, in a network of their own."""

    kind: Literal["lab"] = Field(description="containers on this machine")
    subnet: Annotated[
        Subnet | None,
        Says(
            "an IPv4 network such as 172.30.1.0/24",
            "the site's nodes would have no network, or a wrong one",
            "write a free private network with no host bits set, or leave subnet out and Docker picks one",
            otherwise="Docker's choice",
        ),
    ] = Field(default=None, description="the site's network (CIDR); left out, Docker picks one")
    pools: Annotated[
        tuple[LabPool, ...],
        Says("a list of pools", "the site would have no nodes", "write [{name: a, count: 1}]"),
    ] = Field(default=(), description="the site's nodes; may be empty where the head node stands")


class HostsSite(Site):
    """A site of machines that are there already."""

    kind: Literal["hosts"] = Field(description="your own machines, by SSH")
    hosts: Annotated[
        tuple[HostConfig, ...],
        Field(min_length=1),
        Says("a list of one host or more", "the site would have no nodes", "add a host, or delete the site"),
    ] = Field(description="the site's machines")


AnySite = Annotated[LabSite | HostsSite, Field(discriminator="kind")]
SITE_KINDS: dict[str, type[LabSite] | type[HostsSite]] = {"lab": LabSite, "hosts": HostsSite}


def _uid(data: dict[str, int]) -> int:
    return data["uid"]


class User(Section):
    """A person's account, the same on every node."""

    name: Annotated[
        UserName,
        Says(
            "a user name of at most 32 characters",
            "the account could not be made on the nodes",
            "write another name such as ada",
        ),
    ] = Field(description="log-in name; the home is on the share")
    uid: Annotated[
        Id,
        Says(
            "a number from 1000 up",
            "the user's files on the share would be a system account's, or nobody's",
            "write one from 1000 to 59999 that no account on the nodes has",
        ),
    ] = Field(description="user number, the same on every node")
    gid: Annotated[
        Id,
        Says(
            "a number from 1000 up",
            "the user's files on the share would be a system group's, or nobody's",
            "write one from 1000 to 59999 that no group on the nodes has, or leave gid out to have the uid",
            otherwise="the uid",
        ),
    ] = Field(default_factory=_uid, description="group number, the same on every node; left out, the uid")


class Tailnet(Section):
    """The network that joins the nodes."""

    tag: Annotated[
        str,
        Field(pattern=r"^tag:[a-z][a-z0-9-]{0,48}$"),
        Says(
            "a tag such as tag:cluster",
            "the tailnet's rules could not tell the nodes from people's devices",
            "write tag: and a name of lowercase letters, digits and hyphens",
        ),
    ] = Field(default="tag:cluster", description="the tag that every node carries in the tailnet")
    control_url: Annotated[
        ControlUrl | None,
        Says(
            "the URL of a control server",
            "the nodes could not join the tailnet",
            "write a URL such as https://headscale.example.org, or leave it out to use Tailscale's own",
            otherwise="Tailscale's own",
        ),
    ] = Field(
        default=None,
        description="the tailnet's control server; left out, Tailscale's own, or the lab's in a stack with a lab site",
    )
    auth_key: Annotated[
        AuthKey | None,
        Says(
            "a key on one line",
            "the nodes could not join the tailnet",
            "run: pulumi config set --path --secret tailrack:tailnet.auth_key",
            secret=True,
        ),
    ] = Field(
        default=None,
        description="key that lets nodes join; a Pulumi secret (`pulumi config set --path --secret "
        "tailrack:tailnet.auth_key`); needed where no site is a lab and no control_url is set",
    )


_FOLDER_FIX = "write an absolute path of plain letters, digits, '.', '_' and '-', outside the system's folders"


class Storage(Section):
    """The share: served by the head node over NFS, mounted by every node."""

    path: Annotated[Folder, Says("an absolute path", "the head node could not serve the share", _FOLDER_FIX)] = Field(
        default="/export/shared", description="folder on the head node that is shared"
    )
    mount: Annotated[Folder, Says("an absolute path", "the nodes could not mount the share", _FOLDER_FIX)] = Field(
        default="/shared", description="where every node mounts it; homes are in its folder `home`"
    )


class Partition(Section):
    """A partition besides the ones that every cluster has."""

    name: Annotated[PartitionName, name_says("sbatch -p could not name it", "write a name such as long")] = Field(
        description="the partition's name; `all`, and one by the name of each site and GPU kind, are there already"
    )
    sites: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        Says("a list of one site name or more", "the partition would have no nodes", "write sites' names"),
    ] = Field(description="the sites whose nodes are in it")
    max_time: Annotated[
        TimeLimit,
        Says(
            "a time limit of Slurm's",
            "slurmctld would not start",
            'write minutes, "HH:MM:SS", "D-HH:MM" (in quotes) or UNLIMITED',
        ),
    ] = Field(default="UNLIMITED", description="the longest a job may run: minutes, HH:MM:SS or D-HH:MM")


class Slurm(Section):
    """Slurm beyond what tailrack sets itself."""

    settings: Annotated[
        dict[str, Setting],
        Says(
            "a mapping from a slurm.conf key to its value",
            "slurmctld would not start, or read something else",
            'write KEY: value on one line, truth values as in slurm.conf and in quotes ("YES", "1")',
        ),
    ] = Field(default={}, description="more keys for slurm.conf, such as `SlurmdTimeout: 300`")
    partitions: Annotated[
        tuple[Partition, ...],
        Says("a list of partitions", "there would be none of them", "write [{name: long, sites: [cloud-a]}]"),
    ] = Field(default=(), description="more partitions")
    cgroups: Annotated[bool | None, replace(_YES_NO, otherwise="what the head node offers")] = Field(
        default=None, description="confine jobs with cgroups; left out, if the head node can"
    )
    job_limit_seconds: Annotated[
        Whole, Field(ge=0, le=604800), _count_says(0, 604800, "a node that leaves would wait for its jobs for ever")
    ] = Field(default=300, description="how long jobs may go on when their node leaves, before they are requeued")


def _largest(data: dict[str, int]) -> int:
    smallest, largest = data["min_bytes"], data["max_bytes"]
    return sizes_between(smallest, largest, data["factor"])[-1] if smallest <= largest else largest


class Validation(Section):
    """The bandwidth measurement that ends every change of the cluster."""

    min_bytes: Annotated[Size, _size_says("the measurement would have no first size")] = Field(
        default=parse_size("64K"), description="smallest message"
    )
    max_bytes: Annotated[Size, _size_says("the measurement would have no last size")] = Field(
        default=parse_size("4M"), description="largest message"
    )
    factor: Annotated[Whole, Field(ge=2, le=1024), _count_says(2, 1024, "the sizes would never reach max_bytes")] = (
        Field(default=4, description="each size is the one before times this")
    )
    iterations: Annotated[Whole, Field(ge=1, le=100000), _count_says(1, 100000, "nothing would be measured")] = Field(
        default=5, description="timed runs a size"
    )
    warmup: Annotated[
        Whole, Field(ge=0, le=100000), _count_says(0, 100000, "the first timed run would pay for connecting")
    ] = Field(default=1, description="runs a size before the timed ones")
    gate_bytes: Annotated[Size, _size_says("there would be nothing to judge", "the largest measured")] = Field(
        default_factory=_largest,
        description="the size whose bus bandwidth is held against the floor; left out, the largest measured",
    )
    ranks_per_node: Annotated[Whole, Field(ge=1, le=1024), _count_says(1, 1024, "no process would measure")] = Field(
        default=1, description="processes a node"
    )
    time_limit_minutes: Annotated[
        Whole, Field(ge=1, le=1440), _count_says(1, 1440, "Slurm would end the measurement as it starts")
    ] = Field(default=10, description="limit of each measuring job, minutes")
    queue_limit_seconds: Annotated[
        Whole, Field(ge=0, le=604800), _count_says(0, 604800, "the measurement would wait for other jobs for ever")
    ] = Field(default=600, description="how long a measuring job may wait for its nodes while other jobs are on them")
    floors_gb_per_s: Annotated[
        dict[str, Annotated[Number, Field(gt=0)]],
        Says(
            "a mapping from a site's name or cross-site to GB/s above 0",
            "the measurement would be held against nothing",
            "write a number above 0, or leave the scope out to have it UNJUDGED",
        ),
    ] = Field(default={}, description="least bus bandwidth by scope (a site's name or `cross-site`), GB/s")
    rerun: Annotated[FreeText, Says("a short text", "a change of it starts a new measurement", "write any text")] = (
        Field(default="", description="change this text to measure an unchanged cluster again")
    )
