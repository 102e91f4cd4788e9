"""dcgmi diag on a node, in the deep check's job: NVIDIA's own tests of all its GPUs, in its own words of how bad it is.

What DCGM would have taken out (isolate, reset) is an error. All else that fails is a matter of settings, of a DCGM that
does not know the driver, or of nobody knows what: UNJUDGED, and never a reason to drain a node.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from components.validation.preflight.findings import Finding, finding, line, unjudged

CHECK = "DCGM"
# dcgmErrorSeverity_t of dcgm_errors.h.
MONITOR, BAD = 1, {2: "isolate the GPU", 6: "drain the node and reset the GPU"}
_DOCUMENTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


def findings_of(text: str, level: int) -> list[Finding]:
    """Return what the output of `dcgmi diag -j` says; one UNJUDGED where that is nothing."""
    try:
        whole = json.loads(text[text.index("{") :])
        document = next(whole[name] for name in _DOCUMENTS if name in whole)
        found = list(_failed(document, level))
        tests = [test for category in document["test_categories"] for test in category["tests"]]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        words = " ".join(text.split()[-40:]) or "it printed nothing"
        return [unjudged(CHECK, f"dcgmi diag -r {level} gave no result: {words}", "see 'systemctl status nvidia-dcgm'")]
    return found if tests else [unjudged(CHECK, f"dcgmi diag -r {level} made no test")]


def _failed(document: Mapping[str, Any], level: int) -> Iterator[Finding]:
    for category in document["test_categories"]:
        for test in category["tests"]:
            for result in test.get("results", ()):
                if str(result["status"]).lower() == "fail":
                    yield _finding(str(test["name"]), result, level)


def _finding(test: str, result: Mapping[str, Any], level: int) -> Finding:
    warnings = [each for each in result.get("warnings") or () if isinstance(each, Mapping)]
    where = f"{result.get('entity_group', 'GPU')} {result.get('entity_id', result.get('gpu_ids', ''))}".strip()
    worst = next((each for each in warnings if each.get("error_severity") in BAD), None)
    said = worst or (warnings[0] if warnings else {})
    seen = f"dcgmi diag -r {level}: {test} on {where}: {said.get('warning', 'failed')}"
    if worst is not None:
        return finding("error", CHECK, seen, f"{BAD[worst['error_severity']]}, as DCGM says")
    if warnings and all(each.get("error_severity") == MONITOR for each in warnings):
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
