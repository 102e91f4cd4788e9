"""Slurm's short form of many names. Pure; on the head node and on nodes."""

from __future__ import annotations

import re

# Slurm makes no cluster of more (MAX_SLURM_NODES is 65,536); `a[1-999999999]` comes from elsewhere.
MOST = 65_536


def node_names(hostlist: str) -> list[str]:
    """Names in Slurm's short form: `a[1-2],b` is a1, a2 and b. Raises ValueError for what is in no such form."""
    names: list[str] = []
    for prefix, ranges in re.findall(r"([^,\[\]]+)(?:\[([^\[\]]*)\])?", hostlist):
        for numbers in ranges.split(",") if ranges else ():
            first, _, last = numbers.partition("-")
            if len(names) + int(last or first) - int(first) >= MOST:
                raise ValueError(f"more than {MOST} nodes in {hostlist[:80]!r}")
            names += [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
        names += [] if ranges else [prefix]
    return names
