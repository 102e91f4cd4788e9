"""The exports of the share: a file of each member's node, with one line for its address."""

from __future__ import annotations

import re

from components.node import files

EXPORTS_DIR = "/etc/exports.d"
OWN = f"{EXPORTS_DIR}/tailrack-"
OPTIONS = "rw,sync,secure,{root},no_subtree_check"
# On the share: names and addresses of the members, for a server that is not the head node.
LIST = ".tailrack/exports"
_MEMBER = re.compile(r"([a-z0-9][a-z0-9-]*) ((?:[0-9]{1,3}\.){3}[0-9]{1,3})")


def own_exports() -> list[str]:
    """Return the paths of the files that export the share to members."""
    paths = (f"{EXPORTS_DIR}/{name}" for name in files.names_in(EXPORTS_DIR))
    return [path for path in paths if path.startswith(OWN) and path.endswith(".exports")]


def export_file(node: str) -> str:
    """Return the path of the file that exports the share to a node."""
    return f"{OWN}{node}.exports"


def export_line(path: str, address: str | None, root: str = "root_squash") -> str:
    """Return the line that exports the share to one address; empty without a valid address."""
    return f"{path} {address}/32({OPTIONS.format(root=root)})" if address else ""


def member_list() -> str:
    """Return the members that this machine has exports for, in the form of LIST."""
    rows = ((path, clients((files.read(path) or "").partition(" ")[2])) for path in own_exports())
    names = ((path.removeprefix(OWN).removesuffix(".exports"), found) for path, found in rows if found)
    return "\n".join(f"{name} {found[0].removesuffix('/32')}" for name, found in names)


def export_to_members(path: str, head: str) -> None:
    """Export the share to the members in the head node's list, and to the head node, whose root has rights there.

    head   its name and address
    """
    lines = [head, *files.lines(f"{path}/{LIST}")]
    wanted: dict[str, str] = {}
    for found in filter(None, map(_MEMBER.fullmatch, lines)):
        root = "root_squash" if wanted else "no_root_squash"
        wanted.setdefault(export_file(found[1]), export_line(path, found[2], root))
    for file in own_exports():
        if file not in wanted:
            files.remove(file)
    for file, line in wanted.items():
        files.write(file, line)


def clients(line: str) -> list[str]:
    """Return the clients in an export line, without their options. An unclosed bracket ends the line."""
    return re.findall(r"(?<![^\s()])([^\s()]+)\([^)]*", line)
