"""Preflight: check the nodes before they are measured, as a plain user in one job over all of them.

main.py is the job's program (job_files.py); `read` parses its output. collect.py, a unit of role gpu, collects data for
root only.
"""

from __future__ import annotations

from components.validation.preflight.findings import Finding, read_lines, worst_first
from components.validation.preflight.gpus import with_comparison

__all__ = ["Finding", "read"]


def read(output: str) -> dict[str, list[Finding]]:
    """Return the findings by node, worst first, from the job's output. Malformed output raises nothing."""
    return {node: worst_first(items) for node, items in with_comparison(read_lines(output)).items()}
