"""Compare the munge key with the head node's, before anything waits for a controller that rejects this machine."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.failure import Failure
from components.node.run import succeeds
from components.node.step.step import Step
from components.roles.munge.keys import OTHER_STATE, has_had


@dataclass(frozen=True)
class NodeValues:
    """The cluster's name, and the digest of the head node's munge key; empty if its answer is invalid."""

    munge_cluster: str
    head_munge_digest: str


def node(step: Step, values: NodeValues) -> None:
    """Raise Failure if the keys differ."""
    if not values.head_munge_digest or has_had(values.head_munge_digest, values.munge_cluster):
        return
    # The digest is from the last registration: this machine may have lost its list of keys since then.
    if not succeeds("sinfo", "-h", "-o", "%N", limit=15):
        raise Failure(
            f"the munge key that this run brought to {step.host} is not the key on the head node, so slurmctld rejects "
            "this node: another state made the head node's key",
            OTHER_STATE,
        )
