"""`tailrack idle NODE...`: whether nobody uses these nodes; `make reap` asks it before it takes a pool away."""

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
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.tailrack_command.unused import Use, use
from components.validation.node_names import node_names
from components.validation.slurm_nodes import Node

NAME, HELP = "idle", "say whether no job uses these nodes or waits for them, and for how long"
# What a node that leaves has as its reason, whoever sees it off (components/roles/slurm/register.sh).
REASON = "tailrack: leaves the cluster"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add its words."""
    parser.add_argument("--minutes", type=int, default=0, help="unused is what has been idle for longer than these")
    parser.add_argument("--take-out", action="store_true", help="drain them where they are unused; root alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("nodes", nargs="+", metavar="NODE")


def run(arguments: argparse.Namespace) -> int:
    """Print it; the status is 0 whether they are used or not."""
    if arguments.take_out and os.geteuid() != 0:
        raise SlurmError("only root may take nodes out of work: sudo tailrack idle --take-out ...")
    names = list(dict.fromkeys(arguments.nodes))
    found = look(names, arguments.minutes)
    if found.unused and arguments.take_out:
        found = taken_out(names, arguments.minutes)
    print(json.dumps(asdict(found)) if arguments.json else f"{'unused' if found.unused else 'used'}: {found.why}")
    return 0


def look(names: Sequence[str], minutes: int) -> Use:
    """Ask slurmctld. Raises SlurmError."""
    nodes = {node.name: node for node in slurm.nodes()}
    try:
        jobs = read_jobs(slurm.scontrol("show", "jobs", "--json"))
    except ValueError:
        raise SlurmError("scontrol does not print jobs as JSON here; see 'scontrol show jobs --json'") from None
    for name in names:
        # By itself it tells what it is now.
        if name in nodes and nodes[name].busy:
            nodes[name] = slurm.nodes(name)[0]
    try:
        return use(names, nodes, jobs, read_book(), minutes=minutes, now=time.time(), expand=node_names)
    except ValueError as error:
        raise SlurmError(f"a job's nodes cannot be read: {error}") from None


def taken_out(names: Sequence[str], minutes: int) -> Use:
    """Drain them and look again: a job may have begun meanwhile, and then they are given back."""
    known = {node.name: node for node in slurm.nodes()}
    takes_work = [known[name] for name in names if name in known and not known[name].out]
    if not takes_work:
        return look(names, minutes)
    slurm.scontrol("update", f"nodename={_listed(takes_work)}", "state=drain", f"reason={REASON}")
    again = None
    try:
        again = look(names, minutes)
    finally:
        if again is None or not again.unused:
            slurm.scontrol("update", f"nodename={_listed(takes_work)}", "state=resume")
    return again


def _listed(nodes: Sequence[Node]) -> str:
    return ",".join(node.name for node in nodes)
