"""The interface of a kind of site. Each kind has its own folder for everything else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from components.roles.network.fabric.settings import FabricName, Rdma
from components.settings.cluster import Head
from components.settings.money import Price
from components.settings.network_names import AUTO, ON_THE_TAILNET
from components.settings.problems import Report, Stack
from components.settings.section import Section, key
from components.settings.types import Gpu, NodeSettings, SiteName

Spot = Literal["aws", "gcp", "azure"]  # providers whose notices a node reads


class Site(Section):
    """The keys that every kind of site has."""

    name: SiteName
    """The site's name; a site is a failure and bandwidth domain, with a partition of this name."""
    kind: str
    """The source of its machines."""
    fabric: FabricName = key(
        "auto, tailnet or the name of a network interface",
        "write auto, or a name that `ip -brief address` shows on all its nodes",
        default=AUTO,
    )
    """The IP network for NCCL and MPI inside the site: `auto`, the best one that its nodes share; the name of an
    interface that all nodes have; or `tailnet`, which also turns RDMA off. For a site of pods, only the name of an
    interface has an effect ([pods](pods.md#jobs-over-several-pods))."""
    rdma: Rdma = key(
        "auto, none or a list of RDMA devices",
        "write auto, or names that `ls /sys/class/infiniband` shows on its nodes",
        default=AUTO,
    )
    """The InfiniBand and RoCE ports for jobs inside the site: `auto`, those near GPUs, else all, that its nodes
    share; `none`; or names of devices or ports, `[mlx5_0, mlx5_3:1]`, of which each node uses those that it has."""
    price_per_hour: Price | None = None
    """Price per hour of each machine without its own price, in the stack's `currency`."""
    in_all: bool = True
    """Offer its nodes in the default partition `all`; with `false`, jobs get them only by the site's partition or
    that of their GPU kind."""

    def all_of_kind(self, stack: Stack) -> list[Self]:
        """Return the stack's sites of this kind, for checks of all of them together; none if it is not their first."""
        sites: list[Self] = stack.of_kind[self.kind]
        return sites if sites[0] is self else []


@dataclass(frozen=True)
class NodeSpec(NodeSettings):
    """One node of the stack. Each kind of site adds fields."""

    is_head: bool
    compute: bool  # runs jobs
    price_per_hour: float | None = field(default=None, kw_only=True)  # None if the config has none
    currency: str = field(default="", kw_only=True)  # the stack's
    # The part of the config that makes it; None for a head node that no list has.
    source: Section | None = field(default=None, kw_only=True, compare=False, repr=False)
    cloud_has_price: ClassVar[bool] = False  # whether its cloud's API says what it costs

    def place(self, kind: str) -> str:
        """Return where its machine is rented, for people."""
        return f"{kind} site {self.site}"

    @property
    def price(self) -> str:
        """Return the hourly price, such as `2.05 USD`; empty without a price."""
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
        **extra: Any,
    ) -> Self:
        """Return a node of a site. `extra` has the fields of its kind. Without a price it gets the site's."""
        is_head = (name, site.name) == (head.name, head.site)
        in_all = site.in_all and not extra.get("pod", False)
        login = extra.get("login", False)
        extra = {**extra, "fabric": ON_THE_TAILNET if login else site.fabric, "rdma": site.rdma, "in_all": in_all}
        extra["price_per_hour"] = site.price_per_hour if price is None else price
        shared: dict[str, Any] = {"name": name, "site": site.name, "features": features, "gpu": gpu, **extra}
        return cls(is_head, head.compute if is_head else not login, **shared)


UNREAD = object()  # stands for a value that could not be read, for a reason that is already reported

S = TypeVar("S", bound=Site)
N = TypeVar("N", bound=NodeSpec)


@dataclass(frozen=True)
class Kind(Generic[S, N]):
    """A kind of site: `KIND` of its package (see stacks.sites).

    `machines` names the module whose function `machines` creates Hosts (see stacks.sites.machines). It needs pulumi, so
    it is imported only for a stack with such a site.
    `complete` expands a raw site at its path in the config; for example, it reads files. `nodes` returns the nodes of a
    site, with the head node if it is there.
    """

    model: type[S]
    nodes: Callable[[S, Head], Sequence[N]]
    machines: str
    complete: Callable[[Mapping[str, object], str, Path, Report], Mapping[str, object]] = lambda raw, *_: raw
    lists_head: bool = False  # the head node is one of the machines that the site lists, not an additional one
    is_here: bool = False  # its only machine is the one that runs tailrack
    uses_lab: bool = False  # the programs in lab/ create its nodes, and need Docker
    rents: bool = False  # its machines are rented with an API key of the config (stacks.sites.rented)
    brings_tailnet: bool = False  # its sites come with a control server, so that no tailnet key is needed
