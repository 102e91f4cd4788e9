"""A head node task that removes nodes which their provider took back.

Its plan also has the action `forget`: the same part of all roles' phase `register`, without contacting the node.
"""

from __future__ import annotations

import json
import re

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import STATE_DIR, Step
from components.roles.slurm import controller
from components.roles.slurm.paths import NODES

# One file per silent node, as old as its silence.
_SILENT = f"{STATE_DIR}/slurm/silent"
_DOWN = "tailrack: does not answer"


def expire(step: Step) -> None:
    """Remove the nodes that have been silent for longer than their pool's limit."""
    if not controller.answers():
        raise Failure("slurmctld does not answer", "see 'journalctl -u slurmctld'")
    for name, part in files.read_parts(NODES, ["forget_after"]).items():
        if "forget_after" not in part:
            continue
        minutes, mark = int(part["forget_after"]), f"{_SILENT}/{name}"
        if not minutes or not _is_silent(name):
            files.remove(mark)
            continue
        silent_for = files.age_of(mark)
        if silent_for is None:
            files.remove(mark)
            files.write(mark, "")
        elif silent_for >= minutes * 60:
            note(f"{name} has not answered for {minutes} minutes; removing it")
            step.take_lock()
            _remove(step, name)
            files.remove(mark)


def _remove(step: Step, name: str) -> None:
    # This requeues its jobs.
    if not attempt("scontrol", "update", f"nodename={name}", "state=down", f"reason={_DOWN}").ok:
        note(f"Slurm has no node {name}")
    step.perform("forget", {"NODE_NAME": name})


def _is_silent(name: str) -> bool:
    """Return whether neither slurmctld nor the tailnet hears from a node at the address that it joined with.

    Machines choose their tailnet names. A node that Slurm does not have may be joining.
    """
    if (state := _state(name)) and not re.search("DOWN|NOT_RESPONDING", state):
        return False
    address = (files.read(f"{STATE_DIR}/members/{name}/address") or "").strip()
    status = attempt("tailscale", "status", "--json")
    if not address or not status.ok:
        return False
    peers = (json.loads(status.output).get("Peer") or {}).values()
    return not any(address in (peer.get("TailscaleIPs") or ()) and peer.get("Online") for peer in peers)


def _state(name: str) -> str:
    """Return a node's state in Slurm; empty if Slurm does not have it."""
    try:
        node = json.loads(attempt("scontrol", "show", "node", name, "--json", quiet=True).output)["nodes"][0]
        return "+".join(node["state"])
    except (ValueError, LookupError, TypeError):
        return ""
