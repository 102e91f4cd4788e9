"""Record a pod, which gets its next certificates from the head node: it has no share to fetch them from."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.ssh_trust.members import MEMBERS
from components.roles.ssh_trust.sign import WITHOUT_SHARE


@dataclass(frozen=True)
class PodValues:
    """The name of the pod."""

    node_name: str


def pod_register(step: Step, values: PodValues) -> None:
    """Write the record; `forget` of ssh_trust removes it with the others."""
    files.write(f"{MEMBERS}/{values.node_name}/{WITHOUT_SHARE}", "")
