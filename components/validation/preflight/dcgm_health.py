"""Read DCGM's health watches of a node's GPUs, where DCGM is installed and somebody has turned the watches on.

They are warnings and never drain a node: DCGM also reports what corrects itself, such as heat. Errors that stop jobs
are found by other checks, which need no DCGM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.validation.json_part import first_object
from components.validation.preflight.dcgm_diag import CHECK
from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.health import CommandResult

# The name of the collector's result (collect.py).
COMMAND = "dcgm health"
_OVERALL = "Overall Health"
_MISSING = 127


def check_watches(result: CommandResult | None) -> Iterator[Finding]:
    """Yield a warning for each part of a GPU that DCGM does not call healthy."""
    if result is None or result.status == _MISSING:
        return
    if "watches not enabled" in result.output:
        yield unjudged(
            CHECK, "DCGM watches nothing", "to let it watch the GPUs, run 'dcgmi health -g 0 -s a' on the node"
        )
        return
    answer, complete = first_object(result.output, lambda item: isinstance(item.get("body"), Mapping))
    body = _mapping(answer, "body")
    if not complete or _OVERALL not in body:
        text = " ".join(result.output.split())[:200] or "nothing"
        yield unjudged(CHECK, f"dcgmi health prints {text!r}", "see 'systemctl status nvidia-dcgm' on the node")
        return
    for kind in body:
        for number, entity in _mapping(body, kind, "children").items():
            for system, problem in _mapping(entity, "children", "Errors", "children").items():
                yield _finding(f"{kind} {number}: {system}", problem)


def _finding(subject: str, problem: Any) -> Finding:
    lines = problem.get("overflow") if isinstance(problem, Mapping) else None
    text = " ".join(map(str, lines)) if isinstance(lines, list) else ""
    health = problem.get("value") if isinstance(problem, Mapping) else problem
    return finding("warning", CHECK, f"{subject}: {health}: {text}", "run 'dcgmi health -g 0 -c' and 'dcgmi diag -r 2'")


def _mapping(value: Any, *names: str) -> Mapping[str, Any]:
    """Return the mapping below some names; empty if it does not exist."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
