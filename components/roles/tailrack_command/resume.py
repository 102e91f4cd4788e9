"""`tailrack resume NODE`: back to work, after a look at whether it can."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import time
from collections.abc import Iterator

from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.ask import Checked, ask, checked
from components.roles.tailrack_command.nodes import failures_of
from components.roles.tailrack_command.owners import Out, why_out
from components.validation.preflight.findings import plain, worst_first
from components.validation.slurm_nodes import Node

NAME, HELP = "resume", "give a node work again, after its checks have found no error"
# A node that is down registers first.
BACK_SECONDS = 30
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add its words."""
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--force", action="store_true", help="whatever the checks find")


def run(arguments: argparse.Namespace) -> int:
    """Resume the node; 1 where something speaks against it, and what."""
    if not _NAME.fullmatch(arguments.node):
        raise slurm.SlurmError(f"{arguments.node!r} is no name of one node; see 'tailrack nodes'")
    if os.geteuid() != 0:
        raise slurm.SlurmError(f"only root may resume a node: sudo tailrack resume {arguments.node}")
    (node,) = slurm.nodes(arguments.node)
    out = why_out(node, failures_of([node]).get(node.name) if node.answers else None)
    if out is None:
        print(f"{node.name} takes work already: {node.state}")
        return 0
    print(f"{node.name} is {node.state}, by {out.whose}{f' ({out.who})' if out.who else ''}: {plain(out.reason)}")
    if out.whose in ("prolog", "epilog"):
        print(f"next: {plain(out.next)}")
    against = list(objections(node, out))
    look = (
        Checked(None, "it does not answer")
        if not node.answers
        else checked(ask(node.name, "checks", socket.gethostname()))
    )
    if look.findings is None:
        print(f"not checked: {plain(look.why)}{'' if look.broken else '; going by what Slurm tells'}")
        if look.broken:
            against.append(f"{plain(look.why)}; see 'systemctl status ssh' and 'tailrack-checks' on {node.name}")
    else:
        for each in worst_first(look.findings):
            remedy = f"; {each['remedy']}" if each["remedy"] else ""
            print(f"{each['severity']}: {each['check']}: {each['seen']}{remedy}")
        errors = [each for each in look.findings if each["severity"] == "error"]
        against += [f"{each['check']}: {each['seen']}" for each in errors]
        if not errors:
            print(f"checked: no error{f', {len(look.findings)} findings' if look.findings else ''}")
    if against and not arguments.force:
        print(f"tailrack: {node.name} stays out: {'; '.join(against)}", file=sys.stderr)
        print(f"next: repair that, or 'tailrack resume --force {node.name}'", file=sys.stderr)
        return 1
    try:
        slurm.scontrol("update", f"nodename={node.name}", "state=resume")
    except slurm.SlurmError:
        # One that was down and answers may have come back by itself meanwhile, and then there is nothing to resume.
        if slurm.nodes(node.name)[0].out:
            raise
    return came_back(node.name)


def objections(node: Node, out: Out) -> Iterator[str]:
    """What speaks against it before any check."""
    if not node.answers:
        yield f"slurmctld does not hear of it; {out.next}"
    if "INVALID_REG" in node.flags:
        yield f"it registered with less than it has by its configuration ({node.reason}); {out.next}"
    if out.whose == "tailrack" and ("leaves the cluster" in node.reason or "registers anew" in node.reason):
        yield f"a step of 'make up' took it out; {out.next}"


def came_back(name: str) -> int:
    """Wait until Slurm gives it work; 1 where it does not."""
    end = time.monotonic() + BACK_SECONDS
    while (node := slurm.nodes(name)[0]).out and time.monotonic() < end:
        time.sleep(0.5)
    if node.out:
        said = f" ({node.reason})" if node.reason else ""
        print(
            f"tailrack: {name} is {node.state}{said} after {BACK_SECONDS} s; see 'journalctl -u slurmd' on {name}",
            file=sys.stderr,
        )
        return 1
    print(f"{name} takes work again: {node.state}")
    return 0
