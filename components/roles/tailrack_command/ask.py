"""What a node answers the head node over SSH (tailrack-ask): its checks, and the last failure of a prolog or epilog."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.roles.ssh_trust.answers import ANSWERS
from components.validation.preflight.findings import SEVERITIES, Finding, finding

# Checks themselves end after two minutes.
LIMIT_SECONDS = 150
NO_ANSWER, NO_CHECKS = 255, 127


@dataclass(frozen=True)
class Answer:
    """status   of what ran on the node; NO_ANSWER where nothing did, and `said` tells why."""

    status: int
    said: str


def ask(node: str, question: str, own_name: str) -> Answer:
    """Ask a node, as root; the head node itself is asked here."""
    if os.geteuid() != 0:
        return Answer(NO_ANSWER, "only root can ask a node")
    words = [f"{ANSWERS}/{question}"] if node == own_name else ["/usr/local/sbin/tailrack-ask", node, question]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Answer(NO_ANSWER, f"no answer within {LIMIT_SECONDS} s")
    except OSError as error:
        return Answer(NO_ANSWER, str(error))
    # Checks that find an error print it and exit as if they had failed.
    return Answer(done.returncode, done.stdout if done.stdout.strip() else " ".join(done.stderr.split()))


@dataclass(frozen=True)
class Checked:
    """findings   of the node's checks; None where they did not run, and `why` not; `broken` where they should have."""

    findings: list[Finding] | None
    why: str = ""
    broken: bool = False


def checked(answer: Answer) -> Checked:
    """Read the answer to `checks`: a list of findings as JSON, or an object that has it as `findings`."""
    if answer.status == NO_CHECKS:
        return Checked(None, "it has no checks of its own")
    if answer.status == NO_ANSWER:
        return Checked(None, f"its checks did not run ({answer.said or 'no answer'})", broken=True)
    try:
        told = json.loads(answer.said)
        items = told["findings"] if isinstance(told, Mapping) else told
        return Checked([_finding(item) for item in items])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = f" (exit status {answer.status})" if answer.status else ""
        return Checked(None, f"its checks printed no findings{said}", broken=True)


def _finding(item: Mapping[str, Any]) -> Finding:
    severity = str(item["severity"])
    if severity not in SEVERITIES:
        raise ValueError
    return finding(severity, str(item["check"]), str(item["seen"]), str(item.get("remedy") or ""))


@dataclass(frozen=True)
class Failure:
    """The last failure of a script before or after a job: which one, of what job, what it said and what helps."""

    script: str
    job: str
    what: str
    remedy: str
    time: float


def failure(answer: Answer) -> Failure | None:
    """Read the answer to `last-failure`; None where nothing has failed, or it is not of its form."""
    try:
        told = json.loads(answer.said) if answer.status == 0 and answer.said.strip() else None
        if not isinstance(told, Mapping):
            return None
        plain = {
            key: finding("info", "", str(told.get(key) or ""))["seen"] for key in ("script", "job", "what", "remedy")
        }
        return Failure(**plain, time=float(told.get("time") or 0))
    except (ValueError, TypeError, RecursionError):
        return None
