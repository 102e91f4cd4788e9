"""The stack that a node belongs to: the cluster's stack or a pool's."""

from __future__ import annotations

from functools import cached_property

from components.node import files
from components.node.failure import Failure
from components.roles.slurm.paths import NODES, POOLS


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
        if files.exists(f"{NODES}/{node}/site"):
            owner = (files.read(f"{NODES}/{node}/owner") or "").strip()
            if owner != self._pool:
                return owner
        return next((pool for pool, nodes in self._other_pools.items() if node in nodes), None)
