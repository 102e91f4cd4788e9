"""Placeholders of elastic pools on the head node: nodes that slurmctld has before their machines exist."""

from __future__ import annotations

from components.node import files
from components.node.state import STATE_DIR
from components.roles.slurm.paths import POOLS

# The last report of `make elastic` on each pool: <pool>/status.json.
FOLDER = f"{STATE_DIR}/elastic"
STATUS = "status.json"


def placeholder_names(pool: str) -> list[str]:
    """Return the placeholders of a pool in the order of its config; none if it is not elastic."""
    return [line.split()[0] for line in files.lines(f"{POOLS}/{pool}/placeholders") if line]


def is_placeholder(node: str) -> bool:
    """Return whether a node is a placeholder of any pool."""
    pools = files.read_parts(POOLS, ["placeholders"]).values()
    return any(line.split()[:1] == [node] for part in pools for line in part.get("placeholders", "").splitlines())
