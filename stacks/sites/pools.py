"""Pools: similar nodes of a site, named by a prefix and a number."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import AfterValidator, Field

from components.settings.cluster import Head
from components.settings.problems import Report
from components.settings.section import Section, key, named, number
from components.settings.types import Gpu, check_name, check_node_name
from stacks.sites.kind import N, Site

MOST_NODES = 1000  # of a pool; a Linux bridge has 1,023 ports


def _pool_name(value: str) -> str:
    check_node_name(value + "1")
    return check_name(value, r"[a-z][a-z0-9-]*")


PoolName = Annotated[str, Field(max_length=59), AfterValidator(_pool_name)]  # 59 + 4 digits = a 63 byte label


def pool_name_key(example: str) -> Any:
    """Return the key of a pool's name."""
    return named(
        "the common part of the nodes' names, at most 59 characters",
        breaks="its nodes are named after it, with 1, 2, ... at the end",
        fix=f"write a name such as {example}",
    )


def pool_count_key(breaks: str = "the pool would have no nodes") -> Any:
    """Return the key of a pool's number of nodes."""
    return number("number of nodes", 1, MOST_NODES, breaks=breaks, fix="write 1 or more, or delete the pool", default=1)


def pool_gpu_key() -> Any:
    """Return the key of the GPUs of each node."""
    return key(
        "each node's GPUs, `kind:count`; the check step compares them with the machine",
        wants="a GPU kind and a count such as h100:8",
        breaks="Slurm would not offer the node's GPUs",
        fix="write KIND:COUNT, or leave gpu out",
        default=None,
    )


def pool_node_names(pool: str, count: int) -> tuple[str, ...]:
    """Return the names of a pool's nodes: the pool's name with 1, 2, ... up to `count`."""
    return tuple(f"{pool}{index}" for index in range(1, count + 1))


class NewNodes(Protocol):
    """A pool whose nodes the stack creates."""

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def gpu(self) -> Gpu | None: ...
    @property
    def price_per_hour(self) -> float | None: ...


P = TypeVar("P", bound=NewNodes)


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
    head_nodes = [node.of(site, head, head.name, **of_head)] if head.site == site.name and of_head is not None else []
    return head_nodes + [
        node.of(site, head, name, pool.features, pool.gpu, price=pool.price_per_hour, source=pool, **of_pool(pool))
        for pool in pools
        for name in pool_node_names(pool.name, pool.count)
    ]


def check_not_empty(site: Site, pools: Sequence[Section], head: Head, report: Report) -> None:
    """Report a site without pools and without the head node."""
    if head.site != site.name and not pools:
        breaks = "its partition would be empty, and its measurement would wait for nodes"
        report.add(report.at(site, "pools"), "the site has no nodes", breaks, "add a pool, or delete the site")
