"""Wait until the controller would give this node jobs."""

from __future__ import annotations

import re

from components.node import services
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt, exists, succeeds
from components.node.waiting import wait_until
from components.roles.slurm.node_state import NodeState, read_node, read_or_register

# Seconds for the controller to see a started slurmd as usable.
REGISTER_LIMIT = 90
_CHECK_LIMIT = 60
_USABLE = re.compile("IDLE|MIXED|ALLOCATED")
_OUT = re.compile("NOT_RESPONDING|INVALID|DOWN|UNKNOWN")
_OUT_AND_DRAINED = re.compile("INVALID|NOT_RESPONDING|DOWN")
# munge rejects credentials with a clock difference of more than five minutes, and its errors do not mention clocks.
_CLOCK = re.compile("(Expired|Rewound) credential")


def drained_by_health() -> bool:
    """Return whether the node's health check (role health) drained it."""
    return exists("tailrack-nhc") and succeeds("tailrack-nhc", "--own")


class Usability:
    """Whether the controller talks to this node and would give it work."""

    def __init__(self, host: str, head_address: str) -> None:
        self._host = host
        self._head_address = head_address
        self._usable = False
        self._checked_again = False

    def require(self) -> None:
        """Wait until the node is usable. A drain of a person or of the health check stays.

        Raises Failure for a node that Slurm drained, which waiting does not change, and after a limit.
        """
        if wait_until(self._settled, REGISTER_LIMIT) and self._usable:
            return
        node = read_node(self._host)
        raise Failure(
            f"the controller at {self._head_address} does not see this node as usable "
            f"({f'{node.state} {node.reason}'.strip() if node else 'it has no such node, or rejects its messages'})",
            f"see {services.log_of('slurmd', self._host)} and 'sinfo -R' on the head node{_clock_hint()}",
        )

    def _settled(self) -> bool:
        node = read_or_register(self._host)
        self._usable = node is not None and self._is_usable(node)
        return self._usable or (node is not None and node.drained_by_slurm and not _OUT_AND_DRAINED.search(node.state))

    def _is_usable(self, node: NodeState) -> bool:
        """Return whether the node is usable. Resume a drain that an unfinished step left."""
        note(f"node state: {node.state} {node.reason}")
        if not _USABLE.match(node.state) or _OUT.search(node.state):
            return False
        if node.drained_by_step:
            attempt("scontrol", "update", f"nodename={self._host}", "state=resume")
            return False
        if node.drained_by_person:
            return self._keep_drain(node.reason)
        return not node.drained

    def _keep_drain(self, reason: str) -> bool:
        if not drained_by_health():
            note(f"a person drained this node; it stays drained: {reason}")
        elif self._checked_again:
            note(f"the health check drained this node; it stays drained: {reason}")
        else:
            # The error may have cleared, such as a share that was unreachable with the tailnet. The timer checks every
            # two minutes only.
            self._checked_again = True
            if not attempt("tailrack-nhc", "--wait", limit=_CHECK_LIMIT).ok:
                note("the health check (tailrack-nhc) failed")
            return False
        return True


def _clock_hint() -> str:
    journal = attempt("journalctl", "-u", "slurmd", "-n", "50", "-o", "cat", "--no-pager").output
    different = "; the clocks of this node and the head node differ by more than five minutes"
    return different if _CLOCK.search(journal) else ""
