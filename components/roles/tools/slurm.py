"""What slurmctld knows of nodes, as `scontrol show nodes --json` has it in releases from 23.11 on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LIMIT_SECONDS = 30
# Flags of a node that takes no work, whatever else it is.
_OUT = frozenset({"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED", "POWERED_DOWN"})
# Of a node that still has jobs.
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


class SlurmError(Exception):
    """slurmctld did not answer, or refused: what to tell a person."""


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    flags    Slurm's words: `IDLE`, `DRAIN`, ...
    reason   why it is out, empty where nobody said; who set it (`slurm` for Slurm itself), and when, in Unix seconds
    """

    name: str
    flags: frozenset[str]
    reason: str = ""
    by: str = ""
    since: int = 0

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs."""
        return bool(self.flags & _OUT)

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
    """Read what scontrol printed. Raises SlurmError for what is not of its form."""
    try:
        return sorted((_node(each) for each in json.loads(text)["nodes"]), key=lambda node: node.name)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SlurmError("scontrol does not print nodes as JSON here; see 'scontrol show nodes --json'") from None


def _node(told: Mapping[str, Any]) -> Node:
    state = told["state"]
    return Node(
        str(told["name"]),
        frozenset(state if isinstance(state, list) else str(state).split("+")),
        str(told.get("reason") or ""),
        str(told.get("reason_set_by_user") or ""),
        _number(told.get("reason_changed_at")),
    )


def _number(value: Any) -> int:
    """A number by itself (22.05), or in an object that may say that there is none (since 23.02)."""
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else 0
    return int(value or 0)


def nodes(*names: str) -> list[Node]:
    """Ask slurmctld for all nodes, or for some. Raises SlurmError."""
    return read_nodes(scontrol("show", "nodes", *([",".join(names)] if names else []), "--json"))


def scontrol(*words: str) -> str:
    """Run scontrol and return what it prints. Raises SlurmError with what it says."""
    return said_by(["scontrol", *words])


def said_by(words: Iterable[str]) -> str:
    """Run a command of Slurm and return what it prints. Raises SlurmError with what it says."""
    command = list(words)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(f"there is no {command[0]} here; run it on the head node") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"slurmctld has not answered for {LIMIT_SECONDS} s; see 'journalctl -u slurmctld'") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise SlurmError(f"{' '.join(command[:3])}: {said or f'exit status {done.returncode}'}")
    return done.stdout
