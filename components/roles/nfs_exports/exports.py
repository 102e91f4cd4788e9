"""The exports of the share: a file of each member's node, with one line for its address."""

from __future__ import annotations

import re

from components.node import files

EXPORTS_DIR = "/etc/exports.d"
OWN = f"{EXPORTS_DIR}/tailrack-"
OPTIONS = "rw,sync,secure,root_squash,no_subtree_check"


def own_exports() -> list[str]:
    """Return the paths of the files that export the share to members."""
    paths = (f"{EXPORTS_DIR}/{name}" for name in files.names_in(EXPORTS_DIR))
    return [path for path in paths if path.startswith(OWN) and path.endswith(".exports")]


def export_file(node: str) -> str:
    """Return the path of the file that exports the share to a node."""
    return f"{OWN}{node}.exports"


def export_line(path: str, address: str | None) -> str:
    """Return the line that exports the share to one address; empty without a valid address."""
    return f"{path} {address}/32({OPTIONS})" if address else ""


def clients(line: str) -> list[str]:
    """Return the clients in an export line, without their options. An unclosed bracket ends the line."""
    return re.findall(r"(?<![^\s()])([^\s()]+)\([^)]*", line)
