"""Pools: like nodes of a site, named by a word and a number."""

from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.types import check_name, check_node_name


def _pool_name(value: str) -> str:
    check_node_name(value + "1")
    return check_name(value, r"[a-z][a-z0-9-]*")


PoolName = Annotated[str, Field(max_length=59), AfterValidator(_pool_name)]  # 59 + 4 digits = a 63 byte label


def pool_node_names(pool: str, count: int) -> tuple[str, ...]:
    """The names of a pool's nodes: the pool's name and 1, 2, ... up to `count`."""
    return tuple(f"{pool}{index}" for index in range(1, count + 1))
