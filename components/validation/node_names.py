"""Expand Slurm's short form of node names. Pure; used on the head node and on nodes."""

from __future__ import annotations

import re

# Slurm's limit (MAX_SLURM_NODES); a longer list such as `a[1-999999999]` is not Slurm's.
MOST = 65_536


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
