"""The head node's records of its nodes' fabric, and the part of them that Slurm distributes to all nodes.

A node's folder has `fabric.json`, and `fabric` for Slurm.
"""

from __future__ import annotations

import json

from components.node import files
from components.node.locks import Lock
from components.roles.fabric.networks import Thing
from components.roles.slurm.folders import NODES

# The network of an RDMA group, which has none.
NO_NETWORK = "-"
_LOCK_SECONDS = 60  # the lock covers reading and writing a few files


def lock() -> Lock:
    """Take the lock of all records. Raises Failure."""
    return Lock("fabric", seconds=_LOCK_SECONDS)


def load(node: str) -> Thing | None:
    """Return a node's record; None if it has no readable one."""
    return _record(files.read(f"{NODES}/{node}/fabric.json") or "")


def load_all() -> list[Thing]:
    """Return all readable records."""
    return [record for text in files.read_in_folders(NODES, "fabric.json").values() if (record := _record(text))]


def _record(text: str) -> Thing | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def others(mine: Thing) -> list[Thing]:
    """Return the other nodes of its site with the same setting, the oldest first."""
    keys = ("site", "setting")
    same = [each for each in load_all() if each["node"] != mine["node"] and all(each[key] == mine[key] for key in keys)]
    return sorted(same, key=lambda record: (record["since"], record["node"]))


def save(record: Thing) -> None:
    """Write a node's record, unless the node has left and its folder is gone."""
    folder = f"{NODES}/{record['node']}"
    if files.is_folder(folder):
        files.write(f"{folder}/fabric.json", json.dumps(record, sort_keys=True))
        files.write(f"{folder}/fabric", "\n".join(lines(record)))


def remove(node: str) -> None:
    """Remove a node's record."""
    for name in ("fabric.json", "fabric"):
        files.remove(f"{NODES}/{node}/{name}")


def lines(record: Thing) -> list[str]:
    """Return a node's networks as comments of topology.conf, which Slurm distributes and task-prolog reads.

    `# fabric NODE RANK GROUP INTERFACE NETWORK RDMA`: RDMA is `-` for an IP group, NETWORK is `-` for an RDMA group.
    """
    return [
        " ".join(["# fabric", record["node"], str(group["rank"]), name, group["interface"], group["network"],
                  ",".join(group["rdma"]) or "-"])
        for name, group in sorted(record["groups"].items())
    ]  # fmt: skip
