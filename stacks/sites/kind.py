"""What a kind of site is to the rest of the program. Everything else about it is in its own folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from components.roles.fabric.settings import Fabric, Rdma
from components.settings.cluster import Head
from components.settings.draft import Draft
from components.settings.money import Price, price_key
from components.settings.network_names import AUTO
from components.settings.problems import ROOT, Report
from components.settings.section import Section, key, named
from components.settings.types import Gpu, SiteName


class Site(Section):
    """What every kind of site has."""

    name: SiteName = named(
        "a site is a failure and a bandwidth domain, and a partition of this name",
        breaks="it is the name of the site's partition and floor too",
        fix="write a name such as cloud-a",
    )
    kind: str = key("where its machines come from")
    fabric: Fabric = key(
        "the IP network that NCCL and MPI use inside the site: `auto`, the best that its nodes were seen to share; the "
        "name of an interface that all of them have; or `tailnet`, which turns RDMA off as well",
        wants="auto, tailnet or the name of a network interface",
        breaks="jobs inside the site would have no network",
        fix="write auto, or a name that `ip -brief address` shows on all its nodes",
        default=AUTO,
    )
    rdma: Rdma = key(
        "the InfiniBand and RoCE ports that jobs use inside the site: `auto`, those near GPUs, or all, which its nodes "
        "were seen to share; `none`; or names of devices or ports, `[mlx5_0, mlx5_3:1]`, of which each node uses those "
        "that it has",
        wants="auto, none or a list of RDMA devices",
        breaks="jobs would be told of devices that are not there",
        fix="write auto, or names that `ls /sys/class/infiniband` shows on its nodes",
        default=AUTO,
    )
    price_per_hour: Price | None = price_key("each machine costs an hour that says no price itself")


def kind_key(kind: str, description: str) -> Any:
    """The key `kind` of one kind of site."""
    return key(description, wants=f"`{kind}`", breaks="nobody knows where its nodes come from", fix=f"write {kind}")


def features_key(description: str) -> Any:
    """A key that holds a node's own Slurm features."""
    return key(
        description,
        wants="a list of words such as [nvme, ib]",
        breaks="jobs could not ask for these nodes with --constraint",
        fix="write letters, digits, '_', '.' and '-', a letter first",
        default=(),
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """A node that some part of the config makes, as far as it can be read."""

    name: str | None  # None where it cannot be read
    path: str  # the key that says the name
    compute: bool = True  # runs jobs
    gpu: Gpu | None = None
    login: str | None = None  # the account that the program logs in with, where the config says so

    @property
    def place(self) -> str:
        """The mapping that makes the node, without the config's namespace."""
        return self.path.removeprefix(ROOT).removesuffix(".name")


@dataclass(frozen=True)
class NodeSpec:
    """One node that the stack makes. Each kind of site adds what it makes the node from."""

    name: str
    site: str
    features: tuple[str, ...]  # the user's own
    gpu: Gpu | None
    is_head: bool
    compute: bool  # runs jobs
    fabric: str = field(default=AUTO, kw_only=True)  # of its site
    rdma: str = field(default=AUTO, kw_only=True)  # of its site
    price_per_hour: float | None = field(default=None, kw_only=True)  # None where nobody said
    currency: str = field(default="", kw_only=True)  # the stack's

    @property
    def price(self) -> str:
        """What it costs an hour: `2.05 USD`; empty where nobody said."""
        return "" if self.price_per_hour is None else f"{self.price_per_hour:.10g} {self.currency}"

    @classmethod
    def of(
        cls,
        site: Site,
        head: Head,
        name: str,
        features: tuple[str, ...] = (),
        gpu: Gpu | None = None,
        *,
        price: float | None = None,
        **own: Any,
    ) -> Self:
        """The node of that name at a site; `own` is what its kind adds. Without a price it has the site's."""
        is_head = (name, site.name) == (head.name, head.site)
        own = {**own, "fabric": site.fabric, "rdma": site.rdma}
        own["price_per_hour"] = site.price_per_hour if price is None else price
        return cls(name, site.name, features, gpu, is_head, head.compute or not is_head, **own)


UNREAD = object()  # in the place of a value that could not be had, for a reason that is reported already


def as_written(raw: Mapping[str, object], _path: str, _base_dir: Path, _report: Report) -> Mapping[str, object]:
    """The site as it is."""
    return raw


S = TypeVar("S", bound=Site)
N = TypeVar("N", bound=NodeSpec)


@dataclass(frozen=True)
class Kind(Generic[S, N]):
    """A kind of site: `KIND` of its package (see stacks.sites).

    `machines` names the module whose function `machines` makes Hosts of the nodes (see stacks.sites.machines). It needs
    pulumi, so it is imported only for a stack that has such a site.
    `complete` makes of a site as it is written, at its place in the config, one whose every part is there (files that
    it names are read, for instance). `claims` takes a site and the head, `check` all sites of the kind and the head, as
    far as they can be read; a node of a site may be the head, which `nodes` gives with the rest.
    """

    model: type[S]
    claims: Callable[[Draft, Draft], Iterable[Claim]]
    check: Callable[[Sequence[Draft], Draft, Report], None]
    nodes: Callable[[S, Head], Sequence[N]]
    machines: str
    complete: Callable[[Mapping[str, object], str, Path, Report], Mapping[str, object]] = as_written
    lists_head: bool = False  # the head node is one of the machines a site lists, not one more that is made for it
    is_here: bool = False  # its one machine is the one that the program runs on
    uses_lab: bool = False  # its nodes are made by the programs in lab/, which need Docker
    brings_tailnet: bool = False  # a control server comes with its sites, so that no key for a tailnet is needed
