"""Pools: similar nodes of a site, named by a prefix and a number."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.types import Gpu, check_name, check_node_name
from stacks.sites.kind import Claim

MOST_NODES = 1000  # of a pool; a Linux bridge has 1,023 ports


def _pool_name(value: str) -> str:
    check_node_name(value + "1")
    return check_name(value, r"[a-z][a-z0-9-]*")


PoolName = Annotated[str, Field(max_length=59), AfterValidator(_pool_name)]  # 59 + 4 digits = a 63 byte label


def pool_node_names(pool: str, count: int) -> tuple[str, ...]:
    """Return the names of a pool's nodes: the pool's name with 1, 2, ... up to `count`."""
    return tuple(f"{pool}{index}" for index in range(1, count + 1))


def claims(site: Draft, _head: Draft) -> Iterator[Claim]:
    """Return the nodes of the site's pools; an unreadable count counts as 1."""
    for pool in site.items("pools"):
        name, path, gpu = pool.text("name"), pool.path_of("name"), pool.values.get("gpu")
        size = min(max(pool.whole("count") or 1, 1), MOST_NODES)
        for node in pool_node_names(name, size) if name is not None else (None,):
            yield Claim(node, path, gpu=gpu if isinstance(gpu, Gpu) else None)


def check_not_empty(site: Draft, head: Draft, report: Report) -> None:
    """Report a site without pools and without the head node."""
    head_here = head.text("site") == site.text("name")
    if not head_here and not site.items("pools") and ("pools" not in site.raw or "pools" in site.values):
        breaks = "its partition would be empty, and its measurement would wait for nodes"
        report.add(site.path_of("pools"), "the site has no nodes", breaks, "add a pool, or delete the site")
