"""Parts of nodes and of pools in slurmctld's files: added when a machine or a pool comes, removed when it goes.

`expire` is a task of the head node that removes nodes which their provider took back. Its plan also has the action
`forget`: the same part of all roles' phase `register`, without contacting the node.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from components.node import files
from components.node.failure import Failure
from components.node.files import File
from components.node.log import STATE_DIR, note
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.network.tailnet.tailscale import peers_at
from components.roles.slurm.slurm import controller, folders
from components.roles.slurm.slurm.controller import offer
from components.roles.slurm.slurm.folders import BASE, JOB_LIMIT, NODES, POOLS, is_placeholder, placeholder_names
from components.roles.slurm.slurm.node_state import LEAVES
from components.slurm_commands import slurm

# Flags of a placeholder that has no machine, or loses it.
_WITHOUT_MACHINE = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"})
_PARTITION = re.compile(r"^PartitionName=([^ ]*) Nodes=([^ \n]*)", re.MULTILINE)
_POWER_SAVING = re.compile(
    r"^((?:Suspend|Resume)(?:Program|Time|Rate|FailProgram|ExcNodes|ExcParts|ExcStates))=", re.MULTILINE | re.IGNORECASE
)
_OF_PLACEHOLDERS = ("placeholders", "job_submit.lua", "memory", "gpu_cpus")
_PARTITION_NAME = re.compile(r"PartitionName=([^ ]*) ")
# One file per silent node, as old as its silence.
_SILENT = f"{STATE_DIR}/slurm/silent"
_DOWN = "tailrack: does not answer"


@dataclass(frozen=True)
class NodeFiles:
    """The values of a node's part.

    node_site                   its site
    node_memory, node_gpu_cpus  memory per CPU, and CPUs per GPU, for each of its NodeSets
    node_slurm_conf and so on   its lines of these files
    node_profile                the profile of its own files (machine_keys.py)
    pool_owner                  its pool, empty for the cluster's stack
    pool_forget_after_minutes   minutes of silence before `expire` removes it; 0 for never
    """

    node_name: str
    node_site: str
    node_memory: str
    node_gpu_cpus: str
    node_slurm_conf: str
    node_job_submit_lua: str
    node_profile: str
    pool_owner: str
    pool_forget_after_minutes: int


def write_node(node: NodeFiles) -> None:
    """Write the part. Raises Failure if another stack has a node of this name."""
    Owners(node.pool_owner).refuse_node_of_another(node.node_name)
    texts = {"profile": node.node_profile}
    # The pool of a placeholder has the rest, so that a machine that comes or goes changes no file of slurmctld's.
    texts |= {"site": node.node_site} if is_placeholder(node.node_name) else _texts(node)
    texts |= {"owner": node.pool_owner, "forget_after": str(node.pool_forget_after_minutes)}
    folder = node_folder(node.node_name)
    files.write_all([File(f"{folder}/{name}", text) for name, text in texts.items()])


def _texts(node: NodeFiles) -> dict[str, str]:
    return {
        "slurm.conf": node.node_slurm_conf,
        "job_submit.lua": node.node_job_submit_lua,
        "memory": node.node_memory,
        "gpu_cpus": node.node_gpu_cpus,
        "site": node.node_site,
    }


def node_folder(name: str) -> str:
    """Return the folder of a node's part. Raises ValueError without a name: its parent has all nodes."""
    if not name:
        raise ValueError("a node must have a name")
    return f"{NODES}/{name}"


class Owners:
    """The owners of node names, seen from a stack.

    pool   the pool of this step, empty for the cluster's stack
    """

    def __init__(self, pool: str) -> None:
        self._pool = pool

    @cached_property
    def _other_pools(self) -> dict[str, set[str]]:
        pools = files.read_parts(POOLS, ["nodes"])
        return {name: set(part.get("nodes", "").splitlines()) for name, part in pools.items() if name != self._pool}

    def refuse_node_of_another(self, node: str) -> None:
        """Raise Failure if another stack has a node with this name."""
        owner = self._other_owner(node)
        if owner is not None:
            raise Failure(
                f"the cluster already has a node {node}, in {f'the pool {owner}' if owner else 'its own stack'}",
                "rename one of the two nodes, or remove the other one first",
            )

    def _other_owner(self, node: str) -> str | None:
        """Return the other pool that has the node, or an empty text for the cluster's stack."""
        # A node that is joining has only the folder (role fabric).
        if files.exists(f"{NODES}/{node}/owner"):
            owner = (files.read(f"{NODES}/{node}/owner") or "").strip()
            if owner != self._pool:
                return owner
        return next((pool for pool, nodes in self._other_pools.items() if node in nodes), None)


@dataclass(frozen=True)
class NodeAndAddress(NodeFiles):
    """A node's part of slurmctld's files, and its tailnet address; or a log-in node, which has no part."""

    node_address: str
    node_login: str
    slurm_job_limit_seconds: int


class _Part:
    """The files of a node or a pool as they were before a step changed them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._texts = {name: files.read(f"{folder}/{name}") or "" for name in files.names_in(folder)}

    def offer(self, step: Step, names: Sequence[str]) -> None:
        """Offer the files to slurmctld. Without success, put back those that were there, and raise Failure."""
        if reason := offer(names=names):
            files.write_all([File(f"{self._folder}/{name}", text) for name, text in self._texts.items()])
            for name in {*files.names_in(self._folder)} - self._texts.keys():
                files.remove(f"{self._folder}/{name}")
            if not self._texts:
                files.remove_folder(self._folder)
            raise Failure(reason, f"see its errors above and 'journalctl -u slurmctld' on {step.host}")


def register(step: Step, values: NodeAndAddress) -> None:
    """Add the node."""
    if values.node_login:
        _register_login(step, values)
        return
    # Before the lock, so that the step that has it takes this node's files along.
    part = _Part(node_folder(values.node_name))
    write_node(values)
    step.take_lock()
    names = ["slurm.conf", "gres.conf"]
    # slurmctld places a node that already exists: its own step asks for the reconfiguration.
    if slurm.has_node(values.node_name):
        names.append("topology.conf")
    part.offer(step, names)
    if is_placeholder(name := values.node_name):
        slurm.scontrol("update", f"nodename={name}", f"nodeaddr={values.node_address}", f"nodehostname={name}")


def _register_login(step: Step, values: NodeAndAddress) -> None:
    """Record whose name it is. If the machine has run jobs until now, remove it from slurmctld."""
    Owners(values.pool_owner).refuse_node_of_another(values.node_name)
    if files.exists(f"{node_folder(values.node_name)}/site"):
        release(step, values.node_name, values.slurm_job_limit_seconds)
        step.take_lock()
        forget(step, values.node_name)
    files.write(f"{node_folder(values.node_name)}/owner", values.pool_owner)


def release(step: Step, node_name: str, slurm_job_limit_seconds: int) -> None:
    """Clear the node of jobs (jobs.py), and remove it from the files that slurmctld gets next."""
    # Without a controller every node looks deleted.
    if not wait_until(controller.answers, 60):
        raise Failure("slurmctld does not answer", f"see 'journalctl -u slurmctld' on {step.host}")
    name = node_name
    if slurm.has_node(name) and not (is_placeholder(name) and _is_without_machine(name)):
        _drain(name, slurm_job_limit_seconds)
    # Before this step waits for the lock, so that one reconfiguration removes all leaving nodes. The owner file stays.
    for part in ("site", "fabric", "memory", "gpu_cpus", "slurm.conf", "job_submit.lua"):
        files.remove(f"{node_folder(name)}/{part}")


def _drain(node: str, limit: int) -> None:
    from components.roles.slurm.slurm.jobs import clear_jobs

    limit = min(limit, int(files.read(JOB_LIMIT) or limit))
    if (shown := slurm.node(node)) and shown.flags & {"DOWN", "NOT_RESPONDING"}:
        note(f"not waiting for jobs on {node}, because it does not answer")
        limit = 0
    if not clear_jobs(node, LEAVES, limit):
        slurm.update(nodename=node, state="down", reason=LEAVES)


def _is_without_machine(node: str) -> bool:
    """Return whether a node is a placeholder that Slurm has suspended, so that no job is on it."""
    shown = slurm.node(node)
    return shown is not None and bool(shown.flags & _WITHOUT_MACHINE)


def forget(step: Step, node_name: str) -> None:
    """Delete the node from the controller and from its files."""
    from components.roles.slurm.slurm_release.reservations import unreserve_node

    name = node_name
    # Slurm does not delete a node in a reservation.
    unreserve_node(name)
    if is_placeholder(name):
        if not _is_without_machine(name):
            slurm.update(nodename=name, state="power_down_force", reason=LEAVES)
    elif not wait_until(lambda: controller.node_deleted(name), 60):
        raise Failure(f"slurmctld does not delete node {name}", f"see 'scontrol show node {name}' on {step.host}")
    files.remove_folder(node_folder(name))
    # An unfinished head node has no files yet.
    if files.is_folder(BASE) and (reason := offer()):
        raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")


@dataclass(frozen=True)
class Placeholder:
    """A node that slurmctld has before its machine exists: texts like those of a node."""

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
    """

    pool_owner: str
    pool_nodes: list[str]
    pool_kinds: list[str]
    pool_slurm_conf: list[str]
    pool_placeholders: list[Placeholder]
    pool_kept: list[str]


def pool(step: Step, values: PoolValues) -> None:
    """Add the pool to slurmctld's files."""
    _refuse_taken_names(step, values)
    _refuse_power_saving_of_others(values)
    _refuse_removing_rented(values)
    folder = _folder(values.pool_owner)
    part = _Part(folder)
    texts = {"nodes": values.pool_nodes, "slurm.conf": values.pool_slurm_conf, **_placeholder_texts(values)}
    files.write_all([File(f"{folder}/{name}", "\n".join(lines)) for name, lines in texts.items()])
    for name in (*_OF_PLACEHOLDERS, "kept"):
        if name not in texts:
            files.remove(f"{folder}/{name}")
    part.offer(step, ["slurm.conf"])


def pool_forget(step: Step, pool_owner: str) -> None:
    """Remove the pool from slurmctld's files."""
    # A job may wait for a machine of a placeholder: this returns it to the queue.
    for name in placeholder_names(pool_owner):
        slurm.update(nodename=name, state="down", reason=LEAVES)
    files.remove_folder(f"{folders.ELASTIC}/{pool_owner}")
    files.remove_folder(_folder(pool_owner))
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
        if node == step.host:
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


def expire(step: Step) -> None:
    """Remove the nodes that have been silent for longer than their pool's limit."""
    if not controller.answers():
        raise Failure("slurmctld does not answer", "see 'journalctl -u slurmctld'")
    for name, part in files.read_parts(NODES, ["forget_after"]).items():
        if "forget_after" not in part:
            continue
        minutes, mark = int(part["forget_after"]), f"{_SILENT}/{name}"
        if not minutes or not _is_silent(name):
            files.remove(mark)
            continue
        silent_for = files.age_of(mark)
        if silent_for is None:
            files.remove(mark)
            files.write(mark, "")
        elif silent_for >= minutes * 60:
            note(f"{name} has not answered for {minutes} minutes; removing it")
            step.take_lock()
            # This requeues its jobs.
            if not slurm.update(nodename=name, state="down", reason=_DOWN):
                note(f"Slurm has no node {name}")
            step.perform("forget", {"node_name": name})
            files.remove(mark)


def _is_silent(name: str) -> bool:
    """Return whether neither slurmctld nor the tailnet hears from a node at the address that it joined with.

    Machines choose their tailnet names. A node that Slurm does not have may be joining.
    """
    if (node := slurm.node(name)) and not re.search("DOWN|NOT_RESPONDING", " ".join(node.flags)):
        return False
    address = (files.read(f"{STATE_DIR}/members/{name}/address") or "").strip()
    peers = peers_at(address) if address else None
    return peers is not None and not any(peer.get("Online") for peer in peers)
