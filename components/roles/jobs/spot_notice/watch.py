"""The command `spot-notice PROVIDER` on a node: wait for the notice that the provider takes the machine back.

Then the node drains itself, and its jobs end with SIGTERM: those that can be requeued start on another node. If the
machine comes back, the node takes jobs again.
"""

import time
from collections.abc import Sequence
from typing import NoReturn

from components.node import files
from components.node.log import note
from components.node.step.step import STATE_DIR
from components.roles.jobs.spot_notice.notices import REASON, NoAnswerError, Notice, Read, provider
from components.roles.slurm.slurm.jobs import end_jobs, start_again, wait_for_end
from components.slurm_commands import slurm

_LIMIT = 10
# slurmctld may start a job while the node drains.
_PASSES = 2
_PASS_SECONDS = 2
# Jobs end within KillWait. The machine ends before this limit.
_END_SECONDS = 300


def main(arguments: Sequence[str]) -> NoReturn:
    """Run until systemd ends it."""
    read, seconds = provider(arguments[0])
    watch = Watch((files.read(f"{STATE_DIR}/node-name") or "").strip(), read)
    while True:
        watch.look()
        time.sleep(seconds)


class Watch:
    """The service at work.

    node   this node's name
    read   returns the provider's notice
    """

    def __init__(self, node: str, read: Read) -> None:
        self._node, self._read = node, read
        self._handled = False
        # A drain of an earlier run of the machine.
        self._may_be_drained = True
        self._problem = ""

    def look(self) -> None:
        """Read the notice once, and act if it is new or gone."""
        try:
            notice = self._read()
        except NoAnswerError as error:
            self._report(str(error))
            return
        self._report("")
        if notice is None:
            self._handled = False
            if self._may_be_drained:
                self._may_be_drained = not self._resume()
        elif not self._handled:
            note(notice.reason)
            self._may_be_drained = True
            self._handled = self._give_up(notice)

    def _report(self, problem: str) -> None:
        """Write each problem once, and its end."""
        if problem != self._problem:
            note(problem or "the metadata service answers again")
        self._problem = problem

    def _give_up(self, notice: Notice) -> bool:
        """Drain the node and end its jobs. Return whether slurmctld has taken it."""
        if not self._drain(notice.reason):
            return False
        requeued: list[str] = []
        for number in range(_PASSES):
            if number:
                time.sleep(_PASS_SECONDS)
            ended = end_jobs(self._node, notice.cause(self._node))
            if ended is None:
                return False
            requeued += ended
        wait_for_end(self._node, _END_SECONDS)
        start_again(requeued)
        return True

    def _drain(self, reason: str) -> bool:
        state = slurm.node(self._node)
        if state is not None and state.drained:
            note(f"the node is drained already: {state.reason}")
            return True
        return slurm.update(nodename=self._node, state="drain", reason=reason, limit=_LIMIT)

    def _resume(self) -> bool:
        """Take back a drain of this service. Return whether no such drain is left."""
        state = slurm.node(self._node)
        # A node that has just started is down until slurmd has registered it.
        if state is None or {"DOWN", "NOT_RESPONDING"} & state.flags:
            return False
        if not state.drained or not REASON.match(state.reason):
            return True
        note("the machine is back: the node takes jobs again")
        return slurm.update(nodename=self._node, state="resume", limit=_LIMIT)
