"""Wait until the controller has placed this node in its site's switch.

The controller reads topology.conf only when it reconfigures, and then places all registered nodes, so one call serves
all that are joining (docs/decisions/0015-one-reconfiguration.md). All of them see the same list, so without talking to
each other the first by name makes the call.

Faults of the distributions' releases around a reconfiguration:
- 23.11.4 (Ubuntu 24.04): slurmd forgets jobs that started no step on its node yet; slurmctld rarely deadlocks.
- 24.11.5 (Debian 13): slurmctld hangs; a slow round of pings marks healthy nodes DOWN.
- 25.11.2 (Ubuntu 26.04): slurmctld crashes while prologs or epilogs end, or reading the state of a node that registered
  fewer GPUs than configured.
- All forget a node that registers between slurmctld's last save and the end of its listening.
From 25.11 on, `Topology=` in slurmd's `--conf` could place a node without a call, once all machines have it.
"""

from __future__ import annotations

import re

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import STATE_DIR
from components.node.waiting import now, sleep, wait_until
from components.roles.slurm.node_state import read_or_register
from components.validation.slurm_nodes import node_names

# Seconds for the controller to place this node; without a new arrival, before the first node by name reconfigures while
# more nodes are joining; before any node reconfigures itself; after a reconfiguration.
LIMIT, QUIET, WAIT = 120, 2, 20
_PLACED_LIMIT = 10
_PAUSE = 0.5
_LIST_LIMIT = 20
# The leaf switches only repeat topology.conf; the switch above them lists existing nodes.
_SWITCH = re.compile(r"^SwitchName=tailnet .*\bNodes=(\S+)", re.MULTILINE)


def wait_for_place(host: str, head_address: str) -> bool:
    """Wait until this node has a place, and return whether it had none. Raises Failure."""
    begin = waited = quiet = now()
    unplaced: list[str] = []
    placed = _placed_nodes()
    if placed and host in placed:
        return False
    while now() - begin < LIMIT:
        registered = _registered_nodes(host)
        if registered is not None and placed is not None and (current := sorted(registered - placed)) != unplaced:
            unplaced, quiet = current, now()
        # The first node may have no place in the file.
        if now() - waited >= WAIT or (
            unplaced[:1] == [host] and (now() - quiet >= QUIET or _all_registered(registered or set(), head_address))
        ):
            note(f"reconfiguring slurmctld to place {' '.join(unplaced)}")
            if not attempt("scontrol", "reconfigure").ok:
                note("slurmctld rejects its configuration")
            if wait_until(lambda: _is_placed(host), _PLACED_LIMIT):
                return True
            note("slurmctld has not placed this node yet")
            waited = quiet = now()
        else:
            sleep(_PAUSE)
        placed = _placed_nodes()
        if placed and host in placed:
            return True
    raise Failure(
        "the controller does not place this node in its site's switch",
        "see 'journalctl -u slurmctld' and /etc/slurm/topology.conf on the head node",
    )


def _is_placed(host: str) -> bool:
    return host in (_placed_nodes() or ())


def _placed_nodes() -> set[str] | None:
    """Return the nodes that the controller has placed; None without an answer."""
    # No argument: since 25.05 it would name a topology and not a switch.
    topology = attempt("scontrol", "show", "topology", quiet=True)
    if not topology.ok:
        return None
    switch = _SWITCH.search(topology.output)
    return set(node_names(switch[1])) if switch else set()


def _registered_nodes(host: str) -> set[str] | None:
    """Return the nodes that the controller has; None without an answer. This node registers again if it is missing."""
    nodes = _all_nodes()
    if nodes is not None and host not in nodes and read_or_register(host):
        nodes = _all_nodes()
    return nodes


def _all_nodes() -> set[str] | None:
    listed = attempt("sinfo", "-h", "-a", "-N", "-o", "%N")
    return set(listed.output.split()) if listed.ok else None


def _all_registered(registered: set[str], head_address: str) -> bool:
    """Return whether all nodes are registered that the head node lists (role names), even before their slurmd runs.

    A node whose join broke off costs some seconds, and one that is not listed yet costs one more reconfiguration.
    """
    rows = [line.split() for line in _listed_nodes()]
    names = {row[1] for row in rows if len(row) > 1 and row[0] != head_address}
    return any(row[:1] == [head_address] for row in rows) and names <= registered


def _listed_nodes() -> list[str]:
    """Return the lines of the list: `address name`."""
    share = files.read(f"{STATE_DIR}/names-from")
    if share is None:
        return files.lines(f"{STATE_DIR}/names")
    # A share may not answer.
    return attempt("cat", "--", share.strip(), limit=_LIST_LIMIT, quiet=True).output.splitlines()
