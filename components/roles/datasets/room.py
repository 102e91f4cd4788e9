"""The room that a data set needs on this node: on its disk, and in the quota."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.daemons import free_bytes
from components.node.failure import Failure
from components.roles.datasets import account
from components.roles.datasets.model import Plan, PlannedSet, size_text
from components.roles.datasets.versions import Home, homes


@dataclass(frozen=True)
class Room:
    """The room for one data set; `taken` is the bytes of the data sets before it on this node."""

    node: str
    plan: Plan
    one: PlannedSet
    taken: int

    def lacks(self, version: str) -> tuple[int, Failure] | None:
        """Return how many bytes too many the data set has, and the failure that says so; None if it fits."""
        plan, size = self.plan, self.one.bytes
        if plan.quota and (left := plan.quota - self.taken - self._replaced()) < size:
            room = f"{size_text(max(left, 0))} of the quota of {size_text(plan.quota)}"
            return size - left, Failure(
                f"it needs {size_text(size)}; {room} are left",
                "set tailrack:staging.quota_gb to more, or remove a data set",
            )
        free = free_bytes(self.one.folder)
        home = Home(self.one.folder, self.one.name)
        part = home.part(version)
        have = used(part) if version in home.parts() else 0
        need = max(size - have, 0)
        if free - need < plan.reserve:
            return plan.reserve + need - free, Failure(
                f"the disk of {self.one.folder} on {self.node} is full: {size_text(need)} are needed, "
                f"{size_text(free)} are free, of which {size_text(plan.reserve)} stay free "
                "(tailrack:staging.reserve_gb)",
                f"make room on {self.node} ('df -h {self.one.folder}'), or set another folder",
            )
        return None

    def _replaced(self) -> int:
        """Return the bytes of all versions on this node that were replaced, and that jobs may still use."""
        present = {(one.folder, one.name): one.version for one in self.plan.sets}
        return sum(
            used(home.version(version))
            for home in homes()
            for version in home.versions()
            if version != present.get((home.folder, home.name))
        )


def used(folder: str) -> int:
    """Return the bytes on the disk in a folder of the account."""
    ended = account.output("du", "-s", "-B1", "--", files.on_disk(folder), limit=600)
    first = ended.output.split("\t")[0]
    return int(first) if first.isdecimal() else 0
