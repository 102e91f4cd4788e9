"""tailrack-nhc: Slurm's HealthCheckProgram. It runs as root on every node, every two minutes and when slurmd starts.

Usage: tailrack-nhc [--wait | --reason | --own | --clear]

It makes the node's cheap checks (no driver is queried), writes the findings to /run/tailrack/verdict.json for all
users, and drains the node for an error (`health: ...`). It resumes the node when the error has gone, but never removes
another drain (drain.py). Between an error and its drain, /run/tailrack/unhealthy keeps jobs from starting
(prolog.d/30-health). Notes that drain no node become the node's comment in Slurm (drain.py).

--wait: if a check is running, wait for it and check again, instead of exiting.
--reason: a script of the prolog or epilog failed: wait for Slurm's drain, then add script and error to its reason.
--own: exit with 0 if the node's drain is this program's, else with 1.
--clear: remove this program's comment from the node.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.node.waiting import wait_for
from components.slurm_commands import slurm as slurm_commands
from components.slurm_commands.nodes import Node as SlurmNode
from components.validation.preflight import drain
from components.validation.preflight.drain import Memory, cause, decide, new_comment
from components.validation.preflight.findings import Finding, plain
from components.validation.preflight.node_checks import Node, findings, verdict
from components.validation.preflight.storage import MOUNT, SHARE
from components.validation.this_node import load, node_name, save, stdout_of, steps, text_of
from components.validation.untrusted import read_or_default, value_of

REASON_SECONDS = 60
# slurmd ends this program after a minute.
SLURM_SECONDS = 30
# The node's own drain; for root only.
MEMORY = "drain.json"
OWN_SCRIPT = "prolog.d/30-health"
# slurmctld, killed before it saved a job's start, starts it again, and drains a node that still has the first start.
DUPLICATE = "Duplicate jobid"
# Errors that come and go with restarts of a server drain only if they last until the next check.
LASTING, LASTS_SECONDS = frozenset({MOUNT, SHARE}), 30


def slurm_of(name: str) -> SlurmNode | None:
    """Return the node as slurmctld has it; None if it does not answer or does not know the node."""
    return slurm_commands.node(name, SLURM_SECONDS)


def update(name: str, **changes: str) -> bool:
    """Change the node in Slurm, and return whether slurmctld did it."""
    return slurm_commands.update(nodename=name, **changes, limit=SLURM_SECONDS, quiet=True)


def run_of_slurmd(node: Node) -> str:
    """Return systemd's ID of the present run of slurmd, on a pod its process; empty if slurmd does not run."""
    if node.is_pod:
        return text_of(node.root / "usr/local/lib/tailrack/services/slurmd/supervise/pid")
    return stdout_of("systemctl", "show", "-p", "InvocationID", "--value", "slurmd.service").strip()


def is_own(node: Node, name: str) -> bool:
    slurm = slurm_of(name)
    return slurm is not None and drain.is_own(slurm, read_or_default(Memory, load(node.persistent / MEMORY)).own)


def check(node: Node, name: str, *, instead: bool = False) -> None:
    items = findings(node)
    shown = node.shown / "verdict.json"
    since = since_when(items, load(shown), node.boot_id, time.monotonic())
    save(shown, {**verdict(node, name, items), "since": since}, 0o644)
    items = [
        item for item in items if item["check"] not in LASTING or time.monotonic() - since[cause(item)] >= LASTS_SECONDS
    ]
    memory_file = node.persistent / MEMORY
    slurm = slurm_of(name)
    memory = read_or_default(Memory, load(memory_file))
    # If slurmctld does not answer, assume no change.
    unchanged = SlurmNode(name, frozenset())
    if memory.own:
        unchanged = replace(unchanged, flags=frozenset({"DRAIN"}), reason=memory.own.reason, since=memory.own.at)
    decision = decide(items, slurm or unchanged, memory, f"{node.boot_id} {run_of_slurmd(node)}", instead=instead)
    _show_unhealthy(node, decision.unhealthy)
    if slurm is None:
        return
    duplicate = slurm.drained and slurm.by == "slurm" and slurm.reason == DUPLICATE
    if duplicate and not decision.unhealthy and not {str(job) for _, job, _ in steps(node.root)} - jobs_in_slurm(name):
        sys.stdout.write("the remains of a job that Slurm started twice have ended: resuming the node\n")
        update(name, state="undrain")
    comment_on(items, name, slurm)
    memory_after = decision.memory
    if decision.action == "drain":
        sys.stdout.write(f"{decision.reason}\n")
        if not update(name, state="drain", reason=decision.reason):
            return
        drained = slurm_of(name)
        if drained is None or memory_after.own is None or drained.reason != memory_after.own.reason:
            # The drain's owner is unclear from now on, so only a person removes it.
            memory_after = Memory(accepted=memory_after.accepted)
        else:
            own = memory_after.own._replace(reason=drained.reason, at=drained.since)
            memory_after = replace(memory_after, own=own)
    elif decision.action == "resume":
        sys.stdout.write("no errors are left: resuming the node\n")
        # Unlike `resume`, it changes only the drain.
        if not update(name, state="undrain"):
            return
    if memory_after != memory:
        save(memory_file, memory_after.plain())


def comment_on(items: Iterable[Finding], name: str, slurm: SlurmNode | None) -> None:
    """Give the node the comment for its findings, if it has another one."""
    if slurm is not None and (comment := new_comment(items, slurm.comment)) is not None:
        update(name, comment=comment)


def jobs_in_slurm(name: str) -> set[str]:
    """Return the jobs that slurmctld has on a node; none if it does not answer."""
    return {job for job, *_ in slurm_commands.squeue("%A", "-w", name, limit=20) or ()}


def since_when(items: Sequence[Finding], last_verdict: Any, boot_id: str, now: float) -> dict[str, float]:
    """Return since when, in monotonic seconds, each finding has existed without a break in this boot."""
    of_this_boot = isinstance(last_verdict, dict) and last_verdict.get("boot_id") == boot_id
    times: Mapping[str, float] = {}
    with suppress(ValueError):
        times = value_of(Mapping[str, float], last_verdict.get("since") if of_this_boot else {})
    return {cause(item): min(now, times.get(cause(item), now)) for item in items}


def _show_unhealthy(node: Node, errors: Sequence[Any]) -> None:
    path = node.shown / "unhealthy"
    if errors:
        first = errors[0]
        save(path, f"next: {first['remedy']}\n{first['check']}: {first['seen']}\n", 0o644)
    else:
        path.unlink(missing_ok=True)


def set_reason(node: Node, name: str, seconds: float) -> None:
    """Add the failed script and its error to the reason of Slurm's drain, as soon as that exists, or give up."""
    failure = load(node.shown / "last-failure.json")
    if not isinstance(failure, dict) or failure.get("boot_id") != node.boot_id:
        return

    def slurms_reason() -> str | None:
        slurm = slurm_of(name)
        is_slurms = slurm and slurm.drained and slurm.by == "slurm" and slurm.reason in drain.ERRORS_OF_SLURM
        return slurm.reason if slurm and is_slurms else None

    reason = wait_for(slurms_reason, seconds)
    if reason and failure.get("script") == OWN_SCRIPT:
        check(node, name, instead=True)
    elif reason:
        script, line, remedy = (plain(str(failure.get(key) or "")) for key in ("script", "what", "remedy"))
        update(name, reason=drain.script_reason(reason, script, line, remedy))


def main(arguments: list[str], node: Node | None = None) -> int:
    """Run the program (see the module's docstring). A check that fails drains nothing."""
    # slurmd runs it without an environment.
    os.umask(0o022)
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    node = node or Node()
    name = node_name()
    if arguments not in ([], ["--wait"], ["--reason"], ["--own"], ["--clear"]):
        sys.stderr.write("usage: tailrack-nhc [--wait | --reason | --own | --clear]\n")
        return 2
    if arguments == ["--clear"]:
        comment_on((), name, slurm_of(name))
        return 0
    if arguments == ["--own"]:
        return 0 if is_own(node, name) else 1
    node.of_this_boot.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Path(node.of_this_boot / "nhc.lock").open("w") as lock:
        if arguments == ["--reason"]:
            set_reason(node, name, REASON_SECONDS)
            return 0
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if arguments else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        if node.is_pod:
            # No unit does it there when a script fails.
            set_reason(node, name, 0)
        check(node, name)
    return 0
