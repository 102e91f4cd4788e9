"""`tailrack nodes`: show every node's state; for nodes that are out also the cause, the time and the next command.

On the head node it also shows what the deep check found on the nodes' GPUs.
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from components.roles.commands.tailrack.costs import duration
from components.roles.commands.tailrack.out_reason import Failure, Out, ask, failure, why_out
from components.roles.monitoring.health.gpu_records import published
from components.roles.slurm.slurm.folders import POD
from components.slurm_commands import slurm
from components.slurm_commands.nodes import UNCONFINED, Node
from components.validation.preflight.drain import note_in
from components.validation.preflight.findings import Finding, plain

NAME, HELP = (
    "nodes",
    "show every node's state; for nodes that are out also the cause, since when, and the next command",
)
AT_ONCE = 16
_MOST_NAMES = 8
_UNCONFINED = (
    "jobs are not confined: they can use all cores and GPUs, and Slurm checks their memory only every few seconds"
)
# The limits of a pod, for users whose jobs it runs.
POD_NOTE = (
    "a pod does not confine jobs to their cores and GPUs, ends a job that is over its memory seconds later, and has no "
    "share (docs/using.md)"
)
# The deep check's findings by node.
GpuFindings = Mapping[str, Sequence[Finding]]
NO_FINDINGS: GpuFindings = {}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes")


def run(arguments: argparse.Namespace) -> int:
    """Print the nodes. The exit status is 0 even if nodes are out."""
    shown = slurm.nodes(*arguments.nodes)
    failures = failures_of([node for node in shown if node.out and node.answers])
    why = {node.name: why_out(node, failures.get(node.name)) for node in shown}
    gpu_findings = published()
    print(as_json(shown, why, gpu_findings) if arguments.json else as_text(shown, why, time.time(), gpu_findings))
    return 0


def failures_of(out: Sequence[Node]) -> Mapping[str, Failure]:
    """Ask nodes that are out after a failed prolog or epilog for their last failure. Only root can ask them."""
    names = [node.name for node in out if (why := why_out(node)) is not None and why.whose in ("prolog", "epilog")]
    if not names or os.geteuid() != 0:
        return {}
    own_name = socket.gethostname()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = pool.map(lambda name: failure(ask(name, "last-failure", own_name)), names)
        return {name: failed for name, failed in zip(names, failures, strict=True) if failed is not None}


def as_json(nodes: Sequence[Node], why: Mapping[str, Out | None], gpu_findings: GpuFindings = NO_FINDINGS) -> str:
    """Return `{"nodes": [{name, state, out, since, note, whose, who, reason, next}]}`; `since` in Unix seconds.

    A node with findings of the deep check also has `gpus`: [{severity, seen, next}], and one whose jobs are not
    confined, unlike those of other nodes, has `confined`: false.
    """
    none = {"whose": None, "who": None, "reason": None, "next": None}
    rows = [
        {
            "name": node.name,
            "state": node.state,
            "out": node.out,
            "since": (node.since or None) if node.out else None,
            "note": "; ".join(_notes_of(node)) or None,
            **(asdict(out) if (out := why[node.name]) else none),
            **({"confined": False} if UNCONFINED in node.features else {}),
            **({"gpus": [_as_row(item) for item in items]} if (items := gpu_findings.get(node.name)) else {}),
        }
        for node in nodes
    ]
    return json.dumps({"nodes": rows}, indent=2)


def _as_row(item: Finding) -> dict[str, str]:
    return {"severity": item["severity"], "seen": item["seen"], "next": item["remedy"]}


def as_text(
    nodes: Sequence[Node], why: Mapping[str, Out | None], now: float, gpu_findings: GpuFindings = NO_FINDINGS
) -> str:
    """Return one line per node; below it follow why it is out, and the deep check's findings. Notes come last."""
    width = max((len(node.name) for node in nodes), default=0)
    lines = []
    for node in nodes:
        lines.append(f"{plain(node.name):{width}}  {plain(node.state)}")
        indent, reason = " " * (width + 2), ""
        if (out := why[node.name]) is not None:
            cause, reason = f"{out.whose} {out.who}".strip(), plain(out.reason)
            since = f", since {_ago(node.since, now)}" if node.since else ""
            lines += [f"{indent}{plain(cause)}{since}: {reason}", f"{indent}next: {plain(out.next)}"]
        for item in gpu_findings.get(node.name, ()):
            if item["seen"] not in reason:
                lines += [f"{indent}deep check: {item['seen']}", f"{indent}next: {item['remedy']}"]
    if not nodes:
        return "the cluster has no nodes"
    count = sum(node.out for node in nodes)
    lines += _notes(nodes)
    if names := [plain(node.name) for node in nodes if UNCONFINED in node.features and POD not in node.features]:
        lines.append(f"{_some(names)}: {_UNCONFINED}")
    return "\n".join([*lines, f"{count} of {len(nodes)} nodes out" if count else f"all {len(nodes)} nodes take work"])


def _notes(nodes: Sequence[Node]) -> list[str]:
    """Return a line for each note, with the nodes that have it."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        for note in _notes_of(node):
            names.setdefault(plain(note), []).append(plain(node.name))
    return [f"note for {_some(of_note)}: {note}" for note, of_note in names.items()]


def _notes_of(node: Node) -> list[str]:
    notes = [note_in(node.comment), POD_NOTE if POD in node.features else ""]
    return [note for note in notes if note]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _ago(moment: int, now: float) -> str:
    """Return a time such as `2026-11-23 02:15 UTC (40 min)`."""
    age = duration(max(0, int(now) - moment))
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(moment))} UTC ({age})"
