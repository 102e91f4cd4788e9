"""Preflight: what is wrong with nodes before they are measured. Runs in a job on all of them, as a plain user.

main.py is what a job runs (measurement/plan.py packs it); `read` makes findings by node of what the job printed. What
root alone can see is collected by collect.py, a unit of role gpu. Each kind of check is a module of its own, with the
parser of what it reads.
"""

from __future__ import annotations

from components.validation.preflight.across import with_comparison
from components.validation.preflight.findings import Finding, read_lines, worst_first

__all__ = ["Finding", "read"]


def read(output: str) -> dict[str, list[Finding]]:
    """Return findings by node, worst first, from the output of the job; survives anything, and compares the nodes."""
    return {node: worst_first(items) for node, items in with_comparison(read_lines(output)).items()}
