"""Whose a node's being out is, and what comes next: pure, from what slurmctld says of the node."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from components.roles.tailrack_command.ask import Failure
from components.validation.preflight.drain import DEEP_PREFIX, HEALTH_PREFIX, SCRIPT
from components.validation.slurm_nodes import Node

# What steps and programs of tailrack write (components/roles/slurm). Whoever else begins a reason so is a person.
TAILRACK = re.compile(
    r"tailrack: (registers anew|leaves the cluster|runs no jobs any more|shuts down|does not answer|"
    r"has another munge key|containers.*)"
)
# Seconds by which a failure may come before Slurm's drain: the controller hears of it later.
NEAR_SECONDS = 300

# Flags that Slurm sets for a reason; it says of a silent node alone that it does not answer.
_WITH_REASON = frozenset({"DRAIN", "DOWN", "FAIL", "INVALID_REG", "REBOOT_ISSUED"})

_SLURMS: tuple[tuple[str, str], ...] = (
    ("not responding", "see 'systemctl status slurmd munge tailscaled' on {node}: it is back when these run"),
    ("unexpectedly rebooted", "tailrack resume {node}"),
    ("kill task failed", "a process that cannot be killed: 'systemctl reboot' on {node}, then tailrack resume {node}"),
    ("low", "give {node} back what it had, or run 'make up' with another text in tailrack:cluster.repair for it"),
    ("gres", "see 'nvidia-smi' and 'journalctl -u slurmd' on {node}, then tailrack resume {node}"),
)  # fmt: skip


@dataclass(frozen=True)
class Out:
    """Why a node takes no work.

    whose   `person`, `Slurm`, `health`, `prolog`, `epilog` or `tailrack`; who: the account, of a person
    reason  what is written there; of a failed prolog or epilog what that said
    next    a command, or what to look at
    """

    whose: str
    who: str
    reason: str
    next: str


def why_out(node: Node, failed: Failure | None = None) -> Out | None:
    """Return why a node is out; None for one that takes work.

    failed   the last failure of a prolog or epilog there; left out where it is older than the drain
    """
    if not node.out:
        return None
    node, resume = replace(node, reason=present_reason(node)), f"tailrack resume {node.name}"
    if node.reason.startswith(HEALTH_PREFIX):
        return Out("health", "", node.reason.removeprefix(HEALTH_PREFIX), f"{resume} (it runs the checks first)")
    if node.reason.startswith(DEEP_PREFIX):
        what = f"repair it, then tailrack-deep-check {node.name}, which takes it back when it is as fast as before"
        return Out("health", "", node.reason.removeprefix("tailrack "), what)
    if TAILRACK.fullmatch(node.reason):
        return Out("tailrack", "", node.reason, _of_tailrack(node, resume))
    if (script := SCRIPT.fullmatch(node.reason)) and (script[2] or node.by == "slurm"):
        return _of_script(node, script, failed, resume)
    if node.reason and node.by not in ("", "slurm") and node.flags & {"DRAIN", "DOWN", "FAIL"}:
        return Out("person", node.by, node.reason, f"{resume} (when {node.by} is done)")
    return Out("Slurm", "", node.reason or "no reason given", _of_slurm(node, resume))


def present_reason(node: Node) -> str:
    """Return why a node is out now.

    Slurm may keep the reason of a node that is back, and adds its own to an old one when the node goes down.
    """
    if not node.flags & _WITH_REASON:
        return ""
    if node.by == "slurm" and "DRAIN" not in node.flags:
        return node.reason.rpartition(" : ")[2]
    return node.reason


def _of_script(node: Node, reason: re.Match[str], failed: Failure | None, resume: str) -> Out:
    """A drain after a failed prolog or epilog: Slurm set it, and root on the node wrote the script into its reason.

    The node itself (`failed`) knows more than the reason has room for.
    """
    kind, script, what, remedy = reason.groups("")
    if failed is not None and node.since - NEAR_SECONDS <= failed.time and script in ("", failed.script):
        script, what, remedy = f"{failed.script}, job {failed.job}", failed.what, failed.remedy
    todo = remedy or ("repair it" if script else f"see 'journalctl -u slurmd' on {node.name}")
    return Out(kind.lower(), "", f"{kind} error{f': {script}: {what}' if script else ''}", f"{todo}, then {resume}")


def _of_tailrack(node: Node, resume: str) -> str:
    if "shuts down" in node.reason or "does not answer" in node.reason:
        return f"switch {node.name} on; where it is on, see 'systemctl status slurmd munge tailscaled' on it"
    return f"run 'make up' again; if no step is at work there, {resume}"


def _of_slurm(node: Node, resume: str) -> str:
    if not node.answers and not node.reason:
        return _SLURMS[0][1].format(node=node.name)
    for word, what in _SLURMS:
        if word in node.reason.lower():
            return what.format(node=node.name)
    return f"see 'journalctl -u slurmd' on {node.name}, then {resume}"
