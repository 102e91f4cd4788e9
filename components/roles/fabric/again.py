"""A program that a timer runs on the head node. It retries proofs that failed because no node answered when a node
joined; Slurm distributes the result to all nodes.
"""

from __future__ import annotations

import json

from components.node.failure import Failure
from components.node.log import note
from components.node.run import run
from components.node.step.step import Step
from components.roles.slurm.offer import offer
from components.roles.slurm.paths import NODES

_PROGRAM = "/usr/local/lib/tailrack/fabric.py"


def again(step: Step) -> None:
    """Retry the proofs, and give slurmctld what is proven now."""
    answer = run(_PROGRAM, "again", NODES).strip()
    if not json.loads(answer)["proven"]:
        return
    note(f"proven: {answer}")
    step.take_lock()
    if reason := offer(names=["topology.conf"]):
        raise Failure(reason, "see 'journalctl -u slurmctld'")
