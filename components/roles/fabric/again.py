"""A program that a timer runs on the head node. It retries proofs that failed because no node answered when a node
joined; Slurm distributes the result to all nodes.
"""

from __future__ import annotations

import json

from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.fabric.groups import prove_again
from components.roles.fabric.prove import records
from components.roles.slurm.offer import offer


def again(step: Step) -> None:
    """Retry the proofs, and give slurmctld what is proven now."""
    answer = prove_again(records())
    if not answer["proven"]:
        return
    note(f"proven: {json.dumps(answer)}")
    step.take_lock()
    if reason := offer(names=["topology.conf"]):
        raise Failure(reason, "see 'journalctl -u slurmctld'")
