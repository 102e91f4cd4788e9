"""Explain why a node is out, name the person or program behind it, and the next command.

A node is asked over SSH (tailrack-ask) for its checks and for the last failure of its prolog or epilog.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.commands.tailrack.elastic import NO_MACHINE
from components.roles.jobs.spot_notice.notices import REASON as TAKEN_BACK
from components.roles.slurm.slurm.folders import POD
from components.slurm_commands.nodes import Node
from components.validation.preflight.drain import DEEP_PREFIX, HEALTH_PREFIX, SCRIPT
from components.validation.preflight.findings import SEVERITIES, Finding, finding

# The checks have a limit of two minutes.
LIMIT_SECONDS = 150
NO_ANSWER, NO_CHECKS = 255, 127
# The reasons that tailrack's steps and programs set (role slurm). Any other reason with this prefix is a
# person's.
TAILRACK = re.compile(
    r"tailrack: (registers anew|leaves the cluster|runs no jobs any more|shuts down|does not answer|"
    r"has another munge key|no machine.*|containers.*|the pod started again)"
)
# A script can fail this many seconds before Slurm drains the node, because slurmctld hears of it later.
NEAR_SECONDS = 300
# Flags that Slurm sets together with a reason. A node that only does not answer gets no reason.
_WITH_REASON = frozenset({"DRAIN", "DOWN", "FAIL", "INVALID_REG", "REBOOT_ISSUED"})
_SLURMS: tuple[tuple[str, str], ...] = (
    ("not responding", "check 'systemctl status slurmd munge tailscaled' on {node}: it returns when all of them run"),
    ("unexpectedly rebooted", "tailrack resume {node}"),
    ("kill task failed", "a process cannot be killed: run 'systemctl reboot' on {node}, then tailrack resume {node}"),
    ("low", "restore the missing hardware of {node}, or run 'make up' with new text in tailrack:cluster.repair for it"),
    ("gres", "see 'nvidia-smi' and 'journalctl -u slurmd' on {node}, then tailrack resume {node}"),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The exit status of the program on the node, and its output; or NO_ANSWER, and the error."""

    status: int
    output: str


def ask(node: str, question: str, own_name: str) -> Answer:
    """Ask a node as root. For the head node itself, run the program directly."""
    if os.geteuid() != 0:
        return Answer(NO_ANSWER, "only root can ask a node")
    command = [f"{ANSWERS}/{question}"] if node == own_name else ["/usr/local/sbin/tailrack-ask", node, question]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Answer(NO_ANSWER, f"no answer within {LIMIT_SECONDS} s")
    except OSError as error:
        return Answer(NO_ANSWER, str(error))
    # Checks that find an error print it to stdout and exit with a failure.
    return Answer(done.returncode, done.stdout if done.stdout.strip() else " ".join(done.stderr.split()))


@dataclass(frozen=True)
class Checked:
    """The findings of a node's checks; None if they did not run. `why` is the reason then, `broken` marks errors."""

    findings: list[Finding] | None
    why: str = ""
    broken: bool = False


def checked(answer: Answer) -> Checked:
    """Read the answer to `checks`: JSON, either a list of findings or an object with the key `findings`."""
    if answer.status == NO_CHECKS:
        return Checked(None, "the node has no checks installed")
    if answer.status == NO_ANSWER:
        return Checked(None, f"its checks did not run ({answer.output or 'no answer'})", broken=True)
    try:
        data = json.loads(answer.output)
        items = data["findings"] if isinstance(data, Mapping) else data
        return Checked([_finding(item) for item in items])
    except (ValueError, KeyError, TypeError, RecursionError):
        status = f" (exit status {answer.status})" if answer.status else ""
        return Checked(None, f"its checks printed no findings{status}", broken=True)


def _finding(item: Mapping[str, Any]) -> Finding:
    severity = str(item["severity"])
    if severity not in SEVERITIES:
        raise ValueError
    return finding(severity, str(item["check"]), str(item["seen"]), str(item.get("remedy") or ""))


@dataclass(frozen=True)
class Failure:
    """The last failure of a prolog or epilog: the script, the job, its last line, its remedy and the time."""

    script: str
    job: str
    what: str
    remedy: str
    time: float


def failure(answer: Answer) -> Failure | None:
    """Read the answer to `last-failure`; None if nothing has failed or the answer is invalid."""
    try:
        data = json.loads(answer.output) if answer.status == 0 and answer.output.strip() else None
        if not isinstance(data, Mapping):
            return None
        plain = {
            key: finding("info", "", str(data.get(key) or ""))["seen"] for key in ("script", "job", "what", "remedy")
        }
        return Failure(**plain, time=float(data.get("time") or 0))
    except (ValueError, TypeError, RecursionError):
        return None


@dataclass(frozen=True)
class Out:
    """The reason why a node takes no jobs.

    whose   `person`, `Slurm`, `health`, `prolog`, `epilog`, `provider` or `tailrack`
    who     the account of a person
    reason  the node's reason; after a failed prolog or epilog, the script's last line
    next    a command, or what to check
    """

    whose: str
    who: str
    reason: str
    next: str


def why_out(node: Node, failed: Failure | None = None) -> Out | None:
    """Return why a node is out; None if it takes jobs.

    failed   the last failure of a prolog or epilog on the node; it is ignored if it is older than the drain
    """
    if not node.out:
        return None
    node, resume = replace(node, reason=present_reason(node)), f"tailrack resume {node.name}"
    if node.reason.startswith(HEALTH_PREFIX):
        return Out("health", "", node.reason.removeprefix(HEALTH_PREFIX), f"{resume} (it runs the checks first)")
    if node.reason.startswith(DEEP_PREFIX):
        command = f"repair it, then tailrack-deep-check {node.name}, which resumes it if it is fast again"
        return Out("health", "", node.reason.removeprefix("tailrack "), command)
    if TAKEN_BACK.match(node.reason):
        command = f"if the machine comes back, the node does too; otherwise rent another, or remove {node.name}"
        return Out("provider", "", node.reason, command)
    if TAILRACK.fullmatch(node.reason):
        return Out("tailrack", "", node.reason, _of_tailrack(node, resume))
    if (script := SCRIPT.fullmatch(node.reason)) and (script[2] or node.by == "slurm"):
        return _of_script(node, script, failed, resume)
    if node.reason and node.by not in ("", "slurm") and node.flags & {"DRAIN", "DOWN", "FAIL"}:
        return Out("person", node.by, node.reason, f"{resume} (when {node.by} is done)")
    return Out("Slurm", "", node.reason or "no reason given", _of_slurm(node, resume))


def present_reason(node: Node) -> str:
    """Return the current reason.

    Slurm can keep a reason after the node is back, and appends its own reason to an old one when the node goes down.
    """
    if not node.flags & _WITH_REASON:
        return ""
    if node.by == "slurm" and "DRAIN" not in node.flags:
        return node.reason.rpartition(" : ")[2]
    return node.reason


def _of_script(node: Node, reason: re.Match[str], failed: Failure | None, resume: str) -> Out:
    """Return a drain after a failed prolog or epilog. Slurm set it; root on the node added the script to the reason.

    `failed` comes from the node and has more details than fit into the reason.
    """
    kind, script, message, remedy = reason.groups("")
    if failed is not None and node.since - NEAR_SECONDS <= failed.time and script in ("", failed.script):
        script, message, remedy = f"{failed.script}, job {failed.job}", failed.what, failed.remedy
    advice = remedy or ("repair it" if script else f"see 'journalctl -u slurmd' on {node.name}")
    text = f"{kind} error{f': {script}: {message}' if script else ''}"
    return Out(kind.lower(), "", text, f"{advice}, then {resume}")


def _of_tailrack(node: Node, resume: str) -> str:
    if node.reason.startswith(NO_MACHINE):
        return f"wait: `make elastic` of its pool tries again; to try now: {resume}"
    if "started again" in node.reason:
        return _of_pod(node, resume)
    if "shuts down" in node.reason or "does not answer" in node.reason:
        return f"switch {node.name} on; if it is on, check 'systemctl status slurmd munge tailscaled' on it"
    return f"run 'make up' again; if no step is running there, {resume}"


def _of_slurm(node: Node, resume: str) -> str:
    if POD in node.features:
        return _of_pod(node, resume)
    if not node.answers and not node.reason:
        return _SLURMS[0][1].format(node=node.name)
    for text, advice in _SLURMS:
        if text in node.reason.lower():
            return advice.format(node=node.name)
    return f"see 'journalctl -u slurmd' on {node.name}, then {resume}"


def _of_pod(node: Node, resume: str) -> str:
    if not node.answers:
        services = "sv status /usr/local/lib/tailrack/services/*"
        return (
            f"start {node.name} at its provider; if it runs, check '{services}' on it; if its port is new, 'make trust'"
        )
    return f"see 'tail /var/log/tailrack/slurmd/current' on {node.name}, then {resume}"
