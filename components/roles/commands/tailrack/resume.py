"""`tailrack resume NODE`: check a node and return it to work if the checks find no error."""

import argparse
import os
import re
import socket
import sys
import time
from collections.abc import Iterator

from components.roles.commands.tailrack.elastic import NO_MACHINE
from components.roles.commands.tailrack.nodes import failures_of
from components.roles.commands.tailrack.out_reason import Checked, Out, ask, checked, why_out
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from components.validation.preflight.findings import plain, worst_first

NAME, HELP = "resume", "return a node to work if its checks find no error"
# A node that is down must register first.
BACK_SECONDS = 30
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--force", action="store_true", help="resume it even if the checks find errors")


def run(arguments: argparse.Namespace) -> int:
    """Resume the node. Return 1 after printing the reasons if it must stay out."""
    if not _NAME.fullmatch(arguments.node):
        raise slurm.SlurmError(f"{arguments.node!r} is not the name of a node; see 'tailrack nodes'")
    if os.geteuid() != 0:
        raise slurm.SlurmError(f"only root can resume a node: sudo tailrack resume {arguments.node}")
    (node,) = slurm.nodes(arguments.node)
    out = why_out(node, failures_of([node]).get(node.name) if node.answers else None)
    if out is None:
        print(f"{node.name} already takes work: {node.state}")
        return 0
    print(f"{node.name} is {node.state}, by {out.whose}{f' ({out.who})' if out.who else ''}: {plain(out.reason)}")
    if out.whose in ("prolog", "epilog"):
        print(f"next: {plain(out.next)}")
    if out.reason.startswith(NO_MACHINE):
        slurm.scontrol("update", f"nodename={node.name}", "state=resume")
        print(f"jobs may ask for {node.name} again; `make elastic` of its pool rents it")
        return 0
    problems = list(objections(node, out))
    result = (
        Checked(None, "it does not answer")
        if not node.answers
        else checked(ask(node.name, "checks", socket.gethostname()))
    )
    if result.findings is None:
        print(f"not checked: {plain(result.why)}{'' if result.broken else '; relying on the state in Slurm'}")
        if result.broken:
            problems.append(f"{plain(result.why)}; see 'systemctl status ssh' and 'tailrack-checks' on {node.name}")
    else:
        for item in worst_first(result.findings):
            remedy = f"; {item['remedy']}" if item["remedy"] else ""
            print(f"{item['severity']}: {item['check']}: {item['seen']}{remedy}")
        errors = [item for item in result.findings if item["severity"] == "error"]
        problems += [f"{item['check']}: {item['seen']}" for item in errors]
        if not errors:
            print(f"checked: no error{f', {len(result.findings)} findings' if result.findings else ''}")
    if problems and not arguments.force:
        print(f"tailrack: {node.name} stays out: {'; '.join(problems)}", file=sys.stderr)
        print(f"next: repair that, or run 'tailrack resume --force {node.name}'", file=sys.stderr)
        return 1
    try:
        slurm.scontrol("update", f"nodename={node.name}", "state=resume")
    except slurm.SlurmError:
        # A node that was down can return before this command; then there is nothing to resume.
        if slurm.nodes(node.name)[0].out:
            raise
    return wait_until_back(node.name)


def objections(node: Node, out: Out) -> Iterator[str]:
    """Yield reasons against resuming a node that are known before any check."""
    if not node.answers:
        yield f"it does not answer slurmctld; {out.next}"
    if "INVALID_REG" in node.flags:
        yield f"it registered with less hardware than its configuration has ({node.reason}); {out.next}"
    if out.whose == "tailrack" and ("leaves the cluster" in node.reason or "registers anew" in node.reason):
        yield f"a step of 'make up' drained it; {out.next}"


def wait_until_back(name: str) -> int:
    """Wait until the node takes jobs. Return 1 if it does not."""
    end = time.monotonic() + BACK_SECONDS
    while (node := slurm.nodes(name)[0]).out and time.monotonic() < end:
        time.sleep(0.5)
    if node.out:
        reason = f" ({node.reason})" if node.reason else ""
        print(
            f"tailrack: {name} is {node.state}{reason} after {BACK_SECONDS} s; see 'journalctl -u slurmd' on {name}",
            file=sys.stderr,
        )
        return 1
    print(f"{name} takes work again: {node.state}")
    return 0
