"""`tailrack nodes`: every node's state; of those that are out whose it is, why, since when, and what comes next."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.ask import Failure, ask, failure
from components.roles.tailrack_command.owners import Out, why_out
from components.validation.preflight.findings import plain
from components.validation.slurm_nodes import Node

NAME, HELP = "nodes", "show every node's state; why one is out, whose that is, since when, and the next command"
AT_ONCE = 16


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add its words."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="these alone")


def run(arguments: argparse.Namespace) -> int:
    """Print it; the status is 0 whoever is out."""
    found = slurm.nodes(*arguments.nodes)
    failures = failures_of([node for node in found if node.out and node.answers])
    why = {node.name: why_out(node, failures.get(node.name)) for node in found}
    print(as_json(found, why) if arguments.json else as_text(found, why, time.time()))
    return 0


def failures_of(out: Sequence[Node]) -> Mapping[str, Failure]:
    """The last failure of a prolog or epilog on nodes that are out after one; only root can ask them."""
    asked = [node.name for node in out if (why := why_out(node)) is not None and why.whose in ("prolog", "epilog")]
    if not asked or os.geteuid() != 0:
        return {}
    own = socket.gethostname()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = pool.map(lambda name: failure(ask(name, "last-failure", own)), asked)
        return {name: each for name, each in zip(asked, told, strict=True) if each is not None}


def as_json(nodes: Sequence[Node], why: Mapping[str, Out | None]) -> str:
    """`{"nodes": [{name, state, out, whose, who, reason, since, next}]}`; since in Unix seconds, null where unknown."""
    none = {"whose": None, "who": None, "reason": None, "next": None}
    rows = [
        {
            "name": node.name,
            "state": node.state,
            "out": node.out,
            "since": (node.since or None) if node.out else None,
            **(asdict(out) if (out := why[node.name]) else none),
        }
        for node in nodes
    ]
    return json.dumps({"nodes": rows}, indent=2)


def as_text(nodes: Sequence[Node], why: Mapping[str, Out | None], now: float) -> str:
    """One line a node, and below those that are out, each with its reason and the next command."""
    wide = max((len(node.name) for node in nodes), default=0)
    lines = []
    for node in nodes:
        lines.append(f"{plain(node.name):{wide}}  {plain(node.state)}")
        if (out := why[node.name]) is None:
            continue
        whose = f"{out.whose} {out.who}".strip()
        since = f", since {_ago(node.since, now)}" if node.since else ""
        indent = " " * (wide + 2)
        lines += [f"{indent}{plain(whose)}{since}: {plain(out.reason)}", f"{indent}next: {plain(out.next)}"]
    if not nodes:
        return "the cluster has no nodes"
    count = sum(node.out for node in nodes)
    return "\n".join([*lines, f"{count} of {len(nodes)} nodes out" if count else f"all {len(nodes)} nodes take work"])


def _ago(moment: int, now: float) -> str:
    """`2026-11-23 02:15 UTC (40 min)`."""
    seconds = max(0, int(now) - moment)
    if seconds < 3600:
        length = f"{seconds // 60} min"
    elif seconds < 48 * 3600:
        length = f"{seconds // 3600} h"
    else:
        length = f"{seconds // 86400} days"
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(moment))} UTC ({length})"
