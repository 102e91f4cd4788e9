"""The line of a member's export, and who may mount by such a line. Pure."""

from __future__ import annotations

import re

OPTIONS = "rw,sync,secure,root_squash,no_subtree_check"


def export_line(path: str, address: str | None) -> str:
    """Return the line that exports the share to one address; empty where the member has none that holds."""
    return f"{path} {address}/32({OPTIONS})" if address else ""


def clients(line: str) -> list[str]:
    """Return the clients of an export's line, without their options; a bracket that nothing closes ends the line."""
    return re.findall(r"(?<![^\s()])([^\s()]+)\([^)]*", line)
