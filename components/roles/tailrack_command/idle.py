"""`tailrack idle NODE...`: show whether nodes are unused. `make reap` runs it before it destroys a pool."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict

from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.book import read_book
from components.roles.tailrack_command.job import read_jobs
from components.roles.tailrack_command.node_use import Use, use
from components.roles.tailrack_command.slurm import SlurmError
from components.validation.slurm_nodes import Node, node_names

NAME, HELP = "idle", "show whether jobs use these nodes or wait for them, and how long they have been idle"
# The reason of a leaving node. Steps set the same one (components/roles/slurm/register.py).
REASON = "tailrack: leaves the cluster"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--minutes", type=int, default=0, help="nodes are unused if they have been idle for longer (default: 0)"
    )
    parser.add_argument("--take-out", action="store_true", help="drain the nodes if they are unused (root only)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("nodes", nargs="+", metavar="NODE")


def run(arguments: argparse.Namespace) -> int:
    """Print the result. The exit status is 0 whether the nodes are used or not."""
    if arguments.take_out and os.geteuid() != 0:
        raise SlurmError("only root can drain nodes: sudo tailrack idle --take-out ...")
    names = list(dict.fromkeys(arguments.nodes))
    result = check(names, arguments.minutes)
    if result.unused and arguments.take_out:
        result = take_out(names, arguments.minutes)
    print(json.dumps(asdict(result)) if arguments.json else f"{'unused' if result.unused else 'used'}: {result.why}")
    return 0


def check(names: Sequence[str], minutes: int) -> Use:
    """Ask slurmctld whether the nodes are used. Raise SlurmError if it does not answer."""
    nodes = {node.name: node for node in slurm.nodes()}
    try:
        jobs = read_jobs(slurm.scontrol("show", "jobs", "--json"))
    except ValueError:
        raise SlurmError("scontrol does not print jobs as JSON here; see 'scontrol show jobs --json'") from None
    for name in names:
        # A query for a single node gives its current state.
        if name in nodes and nodes[name].busy:
            nodes[name] = slurm.nodes(name)[0]
    try:
        return use(names, nodes, jobs, read_book(), minutes=minutes, now=time.time(), expand=node_names)
    except ValueError as error:
        raise SlurmError(f"a job's nodes cannot be read: {error}") from None


def take_out(names: Sequence[str], minutes: int) -> Use:
    """Drain the nodes and check again. If a job started in between, resume them."""
    nodes = {node.name: node for node in slurm.nodes()}
    active = [nodes[name] for name in names if name in nodes and not nodes[name].out]
    if not active:
        return check(names, minutes)
    slurm.scontrol("update", f"nodename={_listed(active)}", "state=drain", f"reason={REASON}")
    result = None
    try:
        result = check(names, minutes)
    finally:
        if result is None or not result.unused:
            slurm.scontrol("update", f"nodename={_listed(active)}", "state=resume")
    return result


def _listed(nodes: Sequence[Node]) -> str:
    return ",".join(node.name for node in nodes)
