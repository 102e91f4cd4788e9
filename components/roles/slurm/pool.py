"""Register a pool of another stack, with its partitions and node names, before any of its machines is changed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.slurm.offer import offer
from components.roles.slurm.owners import Owners
from components.roles.slurm.paths import BASE, NODES, POOLS

_PARTITION = re.compile(r"^PartitionName=([^ ]*) Nodes=([^ \n]*)", re.MULTILINE)
_PARTITION_NAME = re.compile(r"PartitionName=([^ ]*) ")


@dataclass(frozen=True)
class PoolValues:
    """A pool.

    pool_owner        the pool's stack
    pool_nodes        names of its nodes
    pool_kinds        GPU kinds that its config names; their partitions may exist already
    pool_slurm_conf   lines of slurm.conf: NodeSets and partitions of its sites
    head_name         the head node's name
    """

    pool_owner: str
    pool_nodes: list[str]
    pool_kinds: list[str]
    pool_slurm_conf: list[str]
    head_name: str


@dataclass(frozen=True)
class PoolOwner:
    """The stack of a pool that is removed."""

    pool_owner: str


def pool(step: Step, values: PoolValues) -> None:
    """Add the pool to slurmctld's files."""
    _refuse_taken_names(step, values)
    folder = _folder(values.pool_owner)
    files.write(f"{folder}/nodes", "\n".join(values.pool_nodes))
    files.write(f"{folder}/slurm.conf", "\n".join(values.pool_slurm_conf))
    if reason := offer(names=["slurm.conf"]):
        files.remove_folder(folder)
        raise Failure(reason, f"see its errors above and 'journalctl -u slurmctld' on {step.host}")


def forget(step: Step, values: PoolOwner) -> None:
    """Remove the pool from slurmctld's files."""
    files.remove_folder(_folder(values.pool_owner))
    if files.is_folder(BASE) and (reason := offer(names=["slurm.conf"])):
        raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")


def _folder(owner: str) -> str:
    if not owner:
        raise ValueError("a pool must have a name")
    return f"{POOLS}/{owner}"


def _refuse_taken_names(step: Step, values: PoolValues) -> None:
    if not files.is_folder(BASE):
        raise Failure(f"there is no cluster on {step.host} yet", "run up of the cluster's stack first")
    others = _other_partitions(values.pool_owner)
    names = {name for name, _ in others}
    for match in filter(None, map(_PARTITION_NAME.match, values.pool_slurm_conf)):
        name = match[1]
        if name in names:
            raise Failure(f"the cluster already has a partition {name}", "rename the pool's site in tailrack:sites")
    # Partitions of GPU kinds are shared: they contain nodes of both stacks.
    for kind in values.pool_kinds:
        if any(name == kind and nodes != f"gpu-{kind}" for name, nodes in others):
            raise Failure(
                f"the cluster already has a partition {kind}, and it is not one of a GPU kind",
                "rename the pool's GPU kind in tailrack:sites",
            )
    owners = Owners(values.pool_owner)
    for node in values.pool_nodes:
        if node == values.head_name:
            raise Failure(f"the cluster's head node has the same name, {node}", "rename the pool's node")
        if node in names:
            raise Failure(
                f"the cluster has a partition {node}, and one of the pool's nodes has the same name",
                "rename the pool's node",
            )
        owners.refuse_node_of_another(node)


def _other_partitions(owner: str) -> set[tuple[str, str]]:
    """Return all partitions but this pool's, each with its NodeSet: the cluster's, other pools' and their nodes'."""
    pools = files.read_parts(POOLS, ["slurm.conf"])
    nodes = files.read_parts(NODES, ["slurm.conf", "owner"])
    texts = [
        files.read(f"{BASE}/slurm.conf") or "",
        *(part.get("slurm.conf", "") for name, part in pools.items() if name != owner),
        *(part.get("slurm.conf", "") for part in nodes.values() if part.get("owner", "").strip() != owner),
    ]
    return {pair for text in texts for pair in _PARTITION.findall(text)}
