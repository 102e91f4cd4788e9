"""Pools: similar nodes of a site, named by a prefix and a number."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from components.settings.cluster import Head
from components.settings.money import Price
from components.settings.problems import Report, Stack
from components.settings.section import Help, Section, key
from components.settings.types import Features, GpuText, Whole, check_name, own_node_name
from stacks.sites.kind import N, Site

MOST_NODES = 1000  # of a pool; a Linux bridge has 1,023 ports

PoolName = Annotated[
    str,
    Field(max_length=59),  # 59 + 4 digits = a 63 byte label
    own_node_name,
    AfterValidator(partial(check_name, pattern=r"[a-z][a-z0-9-]*")),
    Help("a name of at most 59 lowercase letters, digits and hyphens", "write a name such as a"),
]


class Pool(Section):
    """A pool of similar new nodes: name1, name2, ... up to count."""

    name: PoolName
    """The common part of the nodes' names: name1, name2, ... up to `count`."""
    count: Whole = key(fix="write 1 or more, or delete the pool", ge=1, le=MOST_NODES, default=1)
    """Number of nodes."""
    features: Features = ()
    """Slurm features of each node, for `--constraint`."""
    login: bool = False
    """The nodes run no jobs: users log in there, with the share and Slurm's commands."""
    price_per_hour: Price | None = None
    """Price per hour of each node, in the stack's `currency`; default: the site's price, else the cloud's where it
    says one in USD."""


class GpuPool(Pool):
    """A pool whose nodes may have GPUs."""

    gpu: GpuText | None = None
    """Each node's GPUs, `kind:count`; the check step compares them with the machine."""


P = TypeVar("P", bound=Pool)


def new_nodes(
    node: type[N],
    site: Site,
    head: Head,
    of_head: Mapping[str, Any] | None,
    pools: Sequence[P],
    of_pool: Callable[[P], Mapping[str, Any]],
) -> list[N]:
    """Return the nodes that a stack creates for a site, the head node first if it is there.

    of_head   the fields of the head node's kind and its price; None if the site has no machine for it
    of_pool   returns those of a pool's nodes without the price, which the pool has
    """
    nodes = [node.of(site, head, head.name, **of_head)] if head.site == site.name and of_head is not None else []
    for pool in pools:
        gpu = pool.gpu if isinstance(pool, GpuPool) else None
        own = {"price": pool.price_per_hour, "source": pool, "login": pool.login, **of_pool(pool)}
        names = (f"{pool.name}{index}" for index in range(1, pool.count + 1))
        nodes += [node.of(site, head, name, pool.features, gpu, **own) for name in names]
    return nodes


def check_not_empty(site: Site, pools: Sequence[Section], stack: Stack, report: Report) -> None:
    """Report a site without pools and without the head node."""
    if stack.head.site != site.name and not pools:
        breaks = "its partition would be empty, and its measurement would wait for nodes"
        report.add((site, "pools"), "the site has no nodes", breaks, "add a pool, or delete the site")
