"""What slurmctld knows of nodes, as `scontrol show nodes --json` has it. Pure; on the head node and on nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.validation.json_part import first_object

# Flags of a node that takes no work, whatever else it is.
_OUT = frozenset({"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED", "POWERED_DOWN"})
_GPU = re.compile(r"\bgpu:([A-Za-z0-9._-]+:[0-9]+)")
# Of a node that still has jobs.
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    flags    Slurm's words: `IDLE`, `DRAIN`, ...
    reason   why it is out, empty where nobody said; who set it (`slurm` for Slurm itself), and when, in Unix seconds
    gpus     such as h200:8; several kinds by comma; empty without GPUs
    partitions, features   that it is in, and has now
    last_busy   when its last job ended, in Unix seconds; 0 where slurmctld does not know
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

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs."""
        return bool(self.flags & _OUT)

    @property
    def busy(self) -> bool:
        """Whether it has jobs, or sees them off. Of many nodes that are asked together, 24.11 may still say so of one
        whose jobs have ended.
        """
        return bool(self.flags & _BUSY)

    @property
    def answers(self) -> bool:
        """Whether slurmctld hears of it."""
        return not self.flags & {"NOT_RESPONDING", "POWERED_DOWN"}

    @property
    def state(self) -> str:
        """For people: `drained`, `down, not responding`, `mixed`."""
        if "DOWN" in self.flags:
            words = ["down"]
        elif "DRAIN" in self.flags:
            words = ["draining" if self.flags & _BUSY else "drained"]
        else:
            words = [word.lower() for word in sorted(self.flags) if word in {*_BUSY, "IDLE", "UNKNOWN", "FUTURE"}]
        shown = {"DRAIN", "DOWN", *_BUSY, "IDLE", "UNKNOWN", "FUTURE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"}
        return ", ".join([*words, *(flag.lower().replace("_", " ") for flag in sorted(self.flags - shown))])


def read_nodes(text: str) -> list[Node]:
    """Read what scontrol printed, sorted by name. Raises ValueError for what is not of its form.

    A plugin's warning may stand before it.
    """
    whole, complete = first_object(text, lambda each: isinstance(each.get("nodes"), list))
    if not complete:
        raise ValueError("no nodes as Slurm prints them")
    try:
        return sorted((_node(each) for each in whole["nodes"] if each is not None), key=lambda node: node.name)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("no nodes as Slurm prints them") from error


def _node(told: Mapping[str, Any]) -> Node:
    state = told["state"] or "UNKNOWN"
    return Node(
        str(told["name"]),
        frozenset(state if isinstance(state, list) else str(state).split("+")),
        str(told.get("reason") or ""),
        str(told.get("reason_set_by_user") or ""),
        number(told.get("reason_changed_at")),
        ", ".join(_GPU.findall(str(told.get("gres") or ""))),
        _names(told.get("partitions")),
        _names(told.get("active_features")),
        number(told.get("last_busy")),
    )


def _names(told: Any) -> frozenset[str]:
    """A list of names (since 22.05), or one text of them."""
    return frozenset(map(str, told) if isinstance(told, list) else filter(None, str(told or "").split(",")))


def number(value: Any) -> int:
    """0 for none. A number by itself (22.05), or in an object that may say that there is none (since 23.02)."""
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else 0
    return int(value or 0)
