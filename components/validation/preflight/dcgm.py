"""Run dcgmi diag, NVIDIA's tests of all GPUs of a node, in the benchmark check's job, and read DCGM's health watches.

A failed test is an error only if DCGM recommends to isolate or reset the GPU. Other failures may come from settings or
an old DCGM: they are UNJUDGED and never drain a node. Malformed parts of the output do not affect the rest.

Health watches exist where DCGM is installed and somebody has turned them on. They are warnings and never drain a node:
DCGM also reports what corrects itself, such as heat. Errors that stop jobs are found by other checks, which need no
DCGM.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.node.json_part import first_object, objects_in
from components.validation.preflight.findings import CommandResult, Finding, finding, line, unjudged
from components.validation.this_node import MISSING, NOT_RUN, attempt, node_name

CHECK = "DCGM"
# dcgmErrorSeverity_t of dcgm_errors.h.
MONITOR, BAD = 1, {2: "isolate the GPU", 6: "drain the node and reset the GPU"}
_DOCUMENTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
# The name of the collector's result (collect.py).
COMMAND = "dcgm health"
_OVERALL = "Overall Health"


def findings_of(text: str, level: int) -> list[Finding]:
    """Return the findings in the output of `dcgmi diag -j`; one UNJUDGED finding without a result."""
    answer, complete = first_object(text, lambda item: any(isinstance(item.get(name), Mapping) for name in _DOCUMENTS))
    document = next((answer[name] for name in _DOCUMENTS if isinstance(answer.get(name), Mapping)), None)
    # DCGM 4 may list the tests without categories.
    groups = [*objects_in(document, "test_categories"), document] if document else []
    tests = [test for group in groups for test in objects_in(group, "tests")]
    items = [item for test in tests for item in _failed(test, level)]
    if document is None or (not tests and document.get("runtime_error")):
        message = " ".join(text.split()[-40:]) or "it printed nothing"
        return [
            unjudged(CHECK, f"dcgmi diag -r {level} gave no result: {message}", "see 'systemctl status nvidia-dcgm'")
        ]
    if not tests:
        return [unjudged(CHECK, f"dcgmi diag -r {level} ran no test")]
    if not complete:
        items.append(unjudged(CHECK, f"the output of dcgmi diag -r {level} is cut off", "run it on the node"))
    return items


def _failed(test: Mapping[str, Any], level: int) -> Iterator[Finding]:
    """Yield the failures of one test: of its entities, else of its summary."""
    name = str(test.get("name") or "a test without a name")
    failures = [result for result in objects_in(test, "results") if _has_failed(result)]
    summary = test.get("test_summary")
    if not failures and isinstance(summary, Mapping) and _has_failed(summary):
        failures = [summary]
    for result in failures:
        yield _finding(name, result, level)


def _has_failed(result: Mapping[str, Any]) -> bool:
    return str(result.get("status")).lower().startswith("fail")


def _severity(warning: Mapping[str, Any]) -> int | None:
    value = str(warning.get("error_severity"))
    return int(value) if value.isascii() and value.isdecimal() else None


def _finding(test: str, result: Mapping[str, Any], level: int) -> Finding:
    warnings = objects_in(result, "warnings")
    entity = f"{result.get('entity_group') or 'GPU'} {result.get('entity_id', result.get('gpu_ids', ''))}".strip()
    worst = next((item for item in warnings if _severity(item) in BAD), None)
    warning = worst or (warnings[0] if warnings else {})
    seen = f"dcgmi diag -r {level}: {test} on {entity}: {warning.get('warning') or 'failed'}"
    if worst is not None:
        return finding("error", CHECK, seen, f"{BAD[_severity(worst) or 0]}, as DCGM recommends")
    if warnings and all(_severity(item) == MONITOR for item in warnings):
        return finding("warning", CHECK, seen)
    return unjudged(CHECK, seen)


def diagnosed(level: int, seconds: float) -> list[Finding]:
    """Run dcgmi diag as the current user (nv-hostengine runs the tests) with a time limit."""
    ended = attempt("dcgmi", "diag", "-r", str(level), "-j", seconds=seconds)
    if ended.status == MISSING:
        return [unjudged(CHECK, "the node has no dcgmi", "install datacenter-gpu-manager")]
    if ended.status in NOT_RUN:
        return [unjudged(CHECK, f"dcgmi diag -r {level} did not end within {seconds:g} s")]
    # Ignore the exit status: it is nonzero for a mere warning too.
    return findings_of(ended.output or ended.errors, level)


def diagnose(arguments: Sequence[str]) -> int:
    """Print the line of findings. The argument is JSON with `dcgm_level` and `dcgm_seconds`."""
    settings = json.loads(arguments[0])
    node = node_name()
    items = diagnosed(int(settings["dcgm_level"]), float(settings["dcgm_seconds"]))
    sys.stdout.write(line(node, items) + "\n")
    return 0


def check_watches(result: CommandResult | None) -> Iterator[Finding]:
    """Yield a warning for each part of a GPU that DCGM does not call healthy."""
    if result is None or result.status == MISSING:
        return
    if "watches not enabled" in result.output:
        seen = "DCGM watches nothing"
        yield unjudged(CHECK, seen, "to let it watch the GPUs, run 'dcgmi health -g 0 -s a' on the node")
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
                yield _watch_finding(f"{kind} {number}: {system}", problem)


def _watch_finding(subject: str, problem: Any) -> Finding:
    lines = problem.get("overflow") if isinstance(problem, Mapping) else None
    text = " ".join(map(str, lines)) if isinstance(lines, list) else ""
    health = problem.get("value") if isinstance(problem, Mapping) else problem
    return finding("warning", CHECK, f"{subject}: {health}: {text}", "run 'dcgmi health -g 0 -c' and 'dcgmi diag -r 2'")


def _mapping(value: Any, *names: str) -> Mapping[str, Any]:
    """Return the mapping below some names; empty if it does not exist."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
