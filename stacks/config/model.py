"""The stack config as one model per kind of stack: its settings and its sites."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated, Literal, get_args

from pydantic import Field

from components.roles.cluster_settings import ClusterSettings
from components.roles.pool_settings import PoolSettings
from components.roles.slurm.slurm.settings import Elastic
from components.settings.cluster import Head
from components.settings.money import DEFAULT_CURRENCY, Currency
from components.settings.section import Help, key
from components.settings.types import Whole
from stacks.sites import KINDS, AnySite
from stacks.sites.kind import NodeSpec, Site
from stacks.sites.rented.model import ApiKeys
from stacks.stack_name import StackName

# Findings of cli/changes_to_allow that a change may contain.
_Finding = Literal["ssh-open", "key-endless", "export-wide", "floor-removed", "floor-lowered", "head-replaced"]
FINDINGS = SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE, FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED = get_args(_Finding)
Allow = Annotated[
    tuple[_Finding, ...],
    Field(
        description="Changes that `make preview` and `make up` refuse unless you list them here: "
        f"{', '.join(FINDINGS)} ([pull-requests.md](pull-requests.md#what-is-asked-for-by-name))."
    ),
    Help("a list of findings", f"write some of [{', '.join(FINDINGS)}], or leave it out"),
]
ALL = "all"  # the default partition
CLUSTER, POOL = "cluster", "pool"  # kinds of stack
# A pool has no head node; its name and site match nothing.
NO_HEAD = Head.model_construct(name="", site="", compute=False)
Sites = Annotated[
    tuple[AnySite, ...],
    Field(min_length=1, description="The sites with the machines."),
    Help(fix="write a site, as in Pulumi.dev.yaml"),
]
_NO_PRICES: Mapping[str, float] = MappingProxyType({})


def _partitions(sites: Sequence[Site], extras: Iterable[str], nodes: Iterable[NodeSpec]) -> tuple[str, ...]:
    kinds = sorted({node.gpu.kind for node in nodes if node.gpu and node.compute and not node.pod})
    return (ALL, *(site.name for site in sites), *extras, *kinds)


def _nodes(sites: Sequence[Site], head: Head, currency: str) -> list[NodeSpec]:
    nodes = [node for site in sites for node in KINDS[site.kind].nodes(site, head)]
    return [node if node.price_per_hour is None else replace(node, currency=currency) for node in nodes]


class StackConfig(ClusterSettings):
    """The checked config of a cluster's stack: names are unique, references are valid, files exist."""

    kind: Literal["cluster"] = key(f"{CLUSTER} or {POOL}", f"leave it out, or write {POOL}", default=CLUSTER)
    """Kind of the stack: `cluster`, or `pool` for machines that join another stack's cluster."""
    sites: Sites
    api_keys: ApiKeys = key(default={})
    allow: Allow = ()

    def nodes(self) -> list[NodeSpec]:
        """Return every node of the stack: the head node first, then by site in the order of the config."""
        return sorted(_nodes(self.sites, self.head, self.currency), key=lambda node: not node.is_head)

    def partitions(self) -> tuple[str, ...]:
        """Return the partitions: `all` (the default), one per site, the additional ones, one per GPU kind."""
        return _partitions(self.sites, (partition.name for partition in self.slurm.partitions), self.nodes())


class PoolConfig(PoolSettings):
    """The config of a pool's stack, checked as far as possible without its cluster."""

    kind: Literal["pool"]
    """Kind of the stack: machines that join the cluster of another stack."""
    cluster: StackName = key("the name of a stack", "write its name such as dev, without a mapping")
    """The stack of the cluster that the pool joins: its name, or `organization/project/stack`."""
    sites: Sites
    currency: Currency = DEFAULT_CURRENCY
    api_keys: ApiKeys = key(default={})
    idle_limit_minutes: Whole | None = key(ge=5, le=43200, default=None)
    """`make reap` destroys the pool when no node has run a job for longer and no waiting job fits; default: never."""
    allow: Allow = ()

    @property
    def cluster_stack(self) -> str:
        """Return the last part of the name of the cluster's stack."""
        return self.cluster.rpartition("/")[2]

    def nodes(self) -> list[NodeSpec]:
        """Return every node of the pool, by site in the order of the config; of an elastic pool, its placeholders."""
        nodes = self.all_nodes()
        return nodes if self.elastic is None else placeholders(self.elastic, nodes)

    def all_nodes(self) -> list[NodeSpec]:
        """Return every node of the sites, also those that an elastic pool may not rent."""
        return _nodes(self.sites, NO_HEAD, self.currency)

    def partitions(self) -> tuple[str, ...]:
        """Return the partitions of the pool's nodes: `all`, one per site, one per GPU kind."""
        return _partitions(self.sites, (), self.nodes())


AnyConfig = StackConfig | PoolConfig


def placeholders(
    elastic: Elastic, nodes: Sequence[NodeSpec], prices: Mapping[str, float] = _NO_PRICES, stay: Container[str] = ()
) -> list[NodeSpec]:
    """Return the first nodes that may all be rented at once: at most `max`, for at most `max_price_per_hour`.

    prices   of nodes that have none in the config
    stay     nodes that are rented now: they stay placeholders at any price, and the limit counts them first
    """
    allowed = list(nodes[: elastic.max])
    if elastic.max_price_per_hour is None:
        return allowed
    in_turn = sorted(allowed, key=lambda node: node.name not in stay)
    costs = [prices.get(node.name, 0.0) if node.price_per_hour is None else node.price_per_hour for node in in_turn]
    # Sums of prices such as 0.1 are not exact.
    limit = elastic.max_price_per_hour + 1e-6
    affordable = {node.name for node, total in zip(in_turn, accumulate(costs), strict=True) if total <= limit}
    return [node for node in allowed if node.name in affordable or node.name in stay]
