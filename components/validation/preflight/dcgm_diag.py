"""dcgmi diag on a node, in the deep check's job: NVIDIA's own tests of all its GPUs, in its own words of how bad it is.

What DCGM would have taken out (isolate, reset) is an error. All else that fails is a matter of settings, of a DCGM that
does not know the driver, or of nobody knows what: UNJUDGED, and never a reason to drain a node. A part of the answer
that is missing or of another form takes no other part with it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from components.validation.json_part import first_object, objects_in
from components.validation.preflight.findings import Finding, finding, line, unjudged

CHECK = "DCGM"
# dcgmErrorSeverity_t of dcgm_errors.h.
MONITOR, BAD = 1, {2: "isolate the GPU", 6: "drain the node and reset the GPU"}
_DOCUMENTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


def findings_of(text: str, level: int) -> list[Finding]:
    """Return what the output of `dcgmi diag -j` says; one UNJUDGED where that is nothing."""
    whole, complete = first_object(text, lambda each: any(isinstance(each.get(name), Mapping) for name in _DOCUMENTS))
    document = next((whole[name] for name in _DOCUMENTS if isinstance(whole.get(name), Mapping)), None)
    # Since DCGM 4 the tests may stand without categories.
    groups = [*objects_in(document, "test_categories"), document] if document else []
    tests = [test for group in groups for test in objects_in(group, "tests")]
    found = [each for test in tests for each in _failed(test, level)]
    if document is None or (not tests and document.get("runtime_error")):
        words = " ".join(text.split()[-40:]) or "it printed nothing"
        return [unjudged(CHECK, f"dcgmi diag -r {level} gave no result: {words}", "see 'systemctl status nvidia-dcgm'")]
    if not tests:
        return [unjudged(CHECK, f"dcgmi diag -r {level} made no test")]
    if not complete:
        found.append(unjudged(CHECK, f"the answer of dcgmi diag -r {level} is cut off", "run it on the node"))
    return found


def _failed(test: Mapping[str, Any], level: int) -> Iterator[Finding]:
    """The failures of one test: of its entities; of its summary where no entity's is there."""
    name = str(test.get("name") or "a test without a name")
    failures = [each for each in objects_in(test, "results") if _has_failed(each)]
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
    where = f"{result.get('entity_group') or 'GPU'} {result.get('entity_id', result.get('gpu_ids', ''))}".strip()
    worst = next((each for each in warnings if _severity(each) in BAD), None)
    words = worst or (warnings[0] if warnings else {})
    seen = f"dcgmi diag -r {level}: {test} on {where}: {words.get('warning') or 'failed'}"
    if worst is not None:
        return finding("error", CHECK, seen, f"{BAD[_severity(worst) or 0]}, as DCGM says")
    if warnings and all(_severity(each) == MONITOR for each in warnings):
        return finding("warning", CHECK, seen)
    return unjudged(CHECK, seen)


def diagnosed(level: int, seconds: float) -> list[Finding]:
    """Run it, as whoever runs this: nv-hostengine makes the tests. Ended after so many seconds."""
    words = ["dcgmi", "diag", "-r", str(level), "-j"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except FileNotFoundError:
        return [unjudged(CHECK, "the node has no dcgmi", "install datacenter-gpu-manager")]
    except (OSError, subprocess.SubprocessError):
        return [unjudged(CHECK, f"dcgmi diag -r {level} has not ended after {seconds:g} s")]
    # Its status is another one than 0 for a mere warning too: what counts is what it says.
    return findings_of(done.stdout or done.stderr, level)


def main(argument: str) -> int:
    """Print the line of findings. `argument`: JSON with `dcgm_level` and `dcgm_seconds`."""
    about = json.loads(argument)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    found = diagnosed(int(about["dcgm_level"]), float(about["dcgm_seconds"]))
    sys.stdout.write(line(node, found) + "\n")
    return 0
