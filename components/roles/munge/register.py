"""Hand the munge key to a node that missed a key change.

Until both have the same key, neither can read the other's messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.log import note
from components.node.run import succeeds
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.munge.keys import FOLDER, KEY, NEXT, digest_of, late_nodes, take_folder
from components.roles.names.publish import keep_name
from components.roles.ssh_trust.members import ask_all

# Seconds to wait for silent nodes and for starting jobs (services.py). An abandoned change does not hold a node longer.
_CHANGES = 90


@dataclass(frozen=True)
class RegisterValues:
    """A node's name and tailnet address."""

    node_name: str
    node_address: str


def register(step: Step, values: RegisterValues) -> None:
    """Wait for a change of the key, then give the node the key that it missed."""
    if files.exists(FOLDER):
        take_folder()
    if files.exists(NEXT):
        note("the munge key is being changed")
        if not wait_until(lambda: not files.exists(NEXT), _CHANGES):
            note(f"the munge key change was not finished in {_CHANGES}s; continuing with the old key")
            return
    name = values.node_name
    if name not in late_nodes():
        return
    # A node with a new address was asked at the old one, and slurmctld still talks to it with the old key.
    note(f"{name} missed the munge key change; sending the key")
    keep_name(name, values.node_address)
    if not wait_until(lambda: _send_key(name), _CHANGES):
        note(f"{name} does not prove that it has the key")


def _send_key(name: str) -> bool:
    key = files.read(KEY) or ""
    if not ask_all([name], "munge-next", text=key)[name].ok:
        return False
    answer = ask_all([name], "munge-switch", digest_of(key))[name]
    return answer.ok and succeeds("unmunge", stdin=answer.output)
