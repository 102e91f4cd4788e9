"""Publish the names and addresses with which the cluster's machines joined, from `members/<node>/address`.

Names that machines choose in the tailnet are not used.
"""

from __future__ import annotations

from components.node import files
from components.node.state import STATE_DIR
from components.roles.names.names import LIST, write_names

MEMBERS = f"{STATE_DIR}/members"
PROGRAM = "/usr/local/sbin/tailrack-names"


def keep_name(node: str, address: str) -> None:
    """Record the address of a machine."""
    files.write(f"{MEMBERS}/{node}/address", address)


def publish_names(share: str) -> None:
    """Write the list. The head node uses it at once, nodes when they check (names.py).

    Call it with the lock. `share`: a folder that root of a node can read but not write
    """
    members = files.read_in_folders(MEMBERS, "address")
    text = "\n".join(f"{address.strip()} {node}" for node, address in members.items() if address.strip())
    files.write(LIST, text)
    # Role users closes a share that other accounts can change; the next phase `register` publishes there.
    if files.is_closed(share):
        files.make_folder(f"{share}/.tailrack")
        files.write(f"{share}/.tailrack/names", text)
    # An unfinished head node may not have the program yet.
    if files.exists(PROGRAM):
        write_names()
