"""Ask a node over SSH (tailrack-ask) for its checks and for the last failure of its prolog or epilog."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.roles.ssh_trust.ask import ANSWERS
from components.validation.preflight.findings import SEVERITIES, Finding, finding

# The checks have a limit of two minutes.
LIMIT_SECONDS = 150
NO_ANSWER, NO_CHECKS = 255, 127


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
