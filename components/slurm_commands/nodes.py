"""Nodes in the output of `scontrol show nodes --json`, and the short form of their names. Pure; all machines use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.node.json_part import elements

# Flags of a node that accepts no work, whatever else it has.
_OUT = frozenset({"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED", "POWERED_DOWN"})
_GPU = re.compile(r"\bgpu:([A-Za-z0-9._-]+:[0-9]+)")
# The feature of a node that does not confine jobs, in a cluster where others do (slurmd.py of role slurm).
UNCONFINED = "unconfined"
_SITE = "site-"
# States of a placeholder's machine.
_OF_PLACEHOLDER = {
    "POWERED_DOWN": "not rented",
    "POWERING_UP": "being rented",
    "POWERING_DOWN": "being returned",
}
# Flags of a node that still has jobs.
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
# Slurm's limit (MAX_SLURM_NODES); a longer list such as `a[1-999999999]` is not Slurm's.
MOST = 65_536


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    flags    Slurm's states: `IDLE`, `DRAIN`, ...
    reason   reason why it is out, `by` whom (`slurm` for Slurm itself) and `since` when (Unix time)
    gpus     such as h200:8; several kinds separated by commas; empty without GPUs
    features   active features
    last_busy   end of its last job in Unix seconds; 0 if unknown
    comment     its comment, which administrators and the node itself set
    """

    name: str
    flags: frozenset[str]
    reason: str = ""
    by: str = ""
    since: int = 0
    gpus: str = ""
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    last_busy: int = 0
    comment: str = ""
    available: frozenset[str] = frozenset()
    gres: str = ""
    cpus: int = 0
    memory_mb: int = 0
    reserved_mb: int = 0
    extra: str = ""

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.flags

    @property
    def site(self) -> str:
        """Its site; empty without one."""
        return next((name.removeprefix(_SITE) for name in sorted(self.available) if name.startswith(_SITE)), "")

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs."""
        return bool(self._own_flags & _OUT)

    @property
    def is_placeholder(self) -> bool:
        """Whether it belongs to an elastic pool, so that its machine exists only while jobs need it."""
        return "CLOUD" in self.flags

    @property
    def unrented(self) -> bool:
        """Whether it is a placeholder without a machine, which a job would bring."""
        return self.is_placeholder and "POWERED_DOWN" in self.flags and not self.out

    @property
    def _own_flags(self) -> frozenset[str]:
        """Return the flags without those that a placeholder has because its machine does not exist yet."""
        if not self.is_placeholder:
            return self.flags
        awaited = {"NOT_RESPONDING"} if "POWERING_UP" in self.flags else set()
        return self.flags - {"POWERED_DOWN"} - awaited

    @property
    def busy(self) -> bool:
        """Whether it has jobs or cleans up after one. In a query for many nodes, 24.11 may report finished jobs."""
        return bool(self.flags & BUSY)

    @property
    def answers(self) -> bool:
        return not self.flags & {"NOT_RESPONDING", "POWERED_DOWN"}

    @property
    def state(self) -> str:
        """Its state for people: `drained`, `down, not responding`, `mixed`."""
        if "DOWN" in self.flags:
            states = ["down"]
        elif "DRAIN" in self.flags:
            states = ["draining" if self.flags & BUSY else "drained"]
        else:
            states = [word.lower() for word in sorted(self.flags) if word in {*BUSY, "IDLE", "UNKNOWN", "FUTURE"}]
        hidden = {"DRAIN", "DOWN", *BUSY, "IDLE", "UNKNOWN", "FUTURE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"}
        if self.is_placeholder:
            states += [text for flag, text in _OF_PLACEHOLDER.items() if flag in self.flags]
            hidden |= _OF_PLACEHOLDER.keys() | {"POWER_DOWN", "POWER_UP"}
        return ", ".join([*states, *(flag.lower().replace("_", " ") for flag in sorted(self._own_flags - hidden))])


def read_nodes(text: str) -> list[Node]:
    """Return the nodes in scontrol's output, sorted by name. Raises ValueError if it is malformed.

    A plugin's warning may precede the JSON.
    """
    try:
        nodes = (_node(entry) for entry in elements(text, "nodes") if entry is not None)
        return sorted(nodes, key=lambda node: node.name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("scontrol printed no list of nodes") from error


def _node(entry: Mapping[str, Any]) -> Node:
    return Node(
        str(entry["name"]),
        frozenset(entry["state"] or ("UNKNOWN",)),
        str(entry.get("reason") or ""),
        str(entry.get("reason_set_by_user") or ""),
        number(entry.get("reason_changed_at")),
        ", ".join(_GPU.findall(str(entry.get("gres") or ""))),
        _names(entry.get("partitions")),
        _names(entry.get("active_features")),
        number(entry.get("last_busy")),
        str(entry.get("comment") or ""),
        _names(entry.get("features")),
        str(entry.get("gres") or ""),
        number(entry.get("cpus")),
        number(entry.get("real_memory")),
        number(entry.get("specialized_memory")),
        str(entry.get("extra") or ""),
    )


def _names(value: Any) -> frozenset[str]:
    return frozenset(map(str, value or ()))


def number(value: Any) -> int:
    """Return a number, 0 without one. Slurm prints some plain, and others as an object that may be unset."""
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else 0
    return int(value or 0)


def node_names(hostlist: str) -> list[str]:
    """Return the names in Slurm's short form: `a[1-2],b` is a1, a2 and b. Raises ValueError if it is malformed."""
    names: list[str] = []
    for prefix, ranges in re.findall(r"([^,\[\]]+)(?:\[([^\[\]]*)\])?", hostlist):
        for numbers in ranges.split(",") if ranges else ():
            first, _, last = numbers.partition("-")
            if len(names) + int(last or first) - int(first) >= MOST:
                raise ValueError(f"more than {MOST} nodes in {hostlist[:80]!r}")
            names += [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
        names += [] if ranges else [prefix]
    return names
