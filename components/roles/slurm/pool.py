"""Register a pool of another stack, with its partitions and node names, before any of its machines is changed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.files import File
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.slurm import elastic_state
from components.roles.slurm.elastic_state import placeholder_names
from components.roles.slurm.node_state import LEAVES
from components.roles.slurm.offer import offer
from components.roles.slurm.owners import Owners
from components.roles.slurm.paths import BASE, NODES, POOLS

_PARTITION = re.compile(r"^PartitionName=([^ ]*) Nodes=([^ \n]*)", re.MULTILINE)
_POWER_SAVING = re.compile(
    r"^((?:Suspend|Resume)(?:Program|Time|Rate|FailProgram|ExcNodes|ExcParts|ExcStates))=", re.MULTILINE | re.IGNORECASE
)
_OF_PLACEHOLDERS = ("placeholders", "job_submit.lua", "memory", "gpu_cpus")
_PARTITION_NAME = re.compile(r"PartitionName=([^ ]*) ")


@dataclass(frozen=True)
class Placeholder:
    """A node that slurmctld has before its machine exists: texts like those of a node (node_files.py)."""

    name: str
    site: str
    slurm_conf: str
    job_submit_lua: str
    memory: str
    gpu_cpus: str


@dataclass(frozen=True)
class PoolValues:
    """A pool.

    pool_owner        the pool's stack
    pool_nodes        names of its nodes
    pool_kinds        GPU kinds that its config names; their partitions may exist already
    pool_slurm_conf   lines of slurm.conf: NodeSets and partitions of its sites
    pool_placeholders   of an elastic pool, its nodes; pool_kept: names of those that stay without a job
    head_name         the head node's name
    """

    pool_owner: str
    pool_nodes: list[str]
    pool_kinds: list[str]
    pool_slurm_conf: list[str]
    pool_placeholders: list[Placeholder]
    pool_kept: list[str]
    head_name: str


@dataclass(frozen=True)
class PoolOwner:
    """The stack of a pool that is removed."""

    pool_owner: str


def pool(step: Step, values: PoolValues) -> None:
    """Add the pool to slurmctld's files."""
    _refuse_taken_names(step, values)
    _refuse_power_saving_of_others(values)
    _refuse_removing_rented(values)
    folder = _folder(values.pool_owner)
    texts = {"nodes": values.pool_nodes, "slurm.conf": values.pool_slurm_conf, **_placeholder_texts(values)}
    files.write_all([File(f"{folder}/{name}", "\n".join(lines)) for name, lines in texts.items()])
    for name in (*_OF_PLACEHOLDERS, "kept"):
        if name not in texts:
            files.remove(f"{folder}/{name}")
    if reason := offer(names=["slurm.conf"]):
        files.remove_folder(folder)
        raise Failure(reason, f"see its errors above and 'journalctl -u slurmctld' on {step.host}")


def pool_forget(step: Step, values: PoolOwner) -> None:
    """Remove the pool from slurmctld's files."""
    # A job may wait for a machine of a placeholder: this returns it to the queue.
    for name in placeholder_names(values.pool_owner):
        attempt("scontrol", "update", f"nodename={name}", "state=down", f"reason={LEAVES}")
    files.remove_folder(f"{elastic_state.FOLDER}/{values.pool_owner}")
    files.remove_folder(_folder(values.pool_owner))
    if files.is_folder(BASE) and (reason := offer(names=["slurm.conf"])):
        raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")


def _folder(owner: str) -> str:
    if not owner:
        raise ValueError("a pool must have a name")
    return f"{POOLS}/{owner}"


def _placeholder_texts(values: PoolValues) -> dict[str, list[str]]:
    rows = values.pool_placeholders
    if not rows:
        return {}
    return {
        "placeholders": [f"{row.name} {row.site}" for row in rows],
        "kept": values.pool_kept,
        "slurm.conf": [*values.pool_slurm_conf, *(row.slurm_conf for row in rows)],
        "job_submit.lua": [row.job_submit_lua for row in rows],
        "memory": [row.memory for row in rows],
        "gpu_cpus": [row.gpu_cpus for row in rows],
    }


def _refuse_power_saving_of_others(values: PoolValues) -> None:
    text = files.read(f"{BASE}/slurm.conf") or ""
    found = _POWER_SAVING.search(text) if values.pool_placeholders else None
    if found:
        raise Failure(
            f"the cluster's tailrack:slurm.settings have {found[1]}, and an elastic pool needs Slurm's power saving "
            "for itself",
            "remove the key there, or the section elastic of this pool",
        )


def _refuse_removing_rented(values: PoolValues) -> None:
    """Raise Failure if the config drops placeholders whose machines exist: Slurm would lose their jobs."""
    kept = {row.name for row in values.pool_placeholders}
    dropped = [name for name in placeholder_names(values.pool_owner) if name not in kept]
    if rented := [name for name in dropped if files.exists(f"{NODES}/{name}")]:
        raise Failure(
            f"the config no longer has {', '.join(rented)}, whose machines are rented now",
            f"run 'sudo scontrol update nodename={','.join(rented)} state=power_down_asap' here, and the pool's up "
            "after `make elastic` has returned them",
        )


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
