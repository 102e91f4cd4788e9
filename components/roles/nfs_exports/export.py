"""The line that exports the share to a member, and the clients in such a line. Pure."""

from __future__ import annotations

import re

OPTIONS = "rw,sync,secure,root_squash,no_subtree_check"


def export_line(path: str, address: str | None) -> str:
    """Return the line that exports the share to one address; empty without a valid address."""
    return f"{path} {address}/32({OPTIONS})" if address else ""


def clients(line: str) -> list[str]:
    """Return the clients in an export line, without their options. An unclosed bracket ends the line."""
    return re.findall(r"(?<![^\s()])([^\s()]+)\([^)]*", line)
