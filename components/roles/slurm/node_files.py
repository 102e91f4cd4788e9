"""A node's part of slurmctld's files."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.roles.slurm.elastic_state import is_placeholder
from components.roles.slurm.owners import Owners
from components.roles.slurm.paths import NODES


@dataclass(frozen=True)
class NodeFiles:
    """The values of a node's part.

    node_site                   its site
    node_memory, node_gpu_cpus  memory per CPU, and CPUs per GPU, for each of its NodeSets
    node_slurm_conf and so on   its lines of these files
    node_profile                the profile of its own files (machine_keys.py)
    pool_owner                  its pool, empty for the cluster's stack
    pool_forget_after_minutes   minutes of silence before expire.py removes it; 0 for never
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
