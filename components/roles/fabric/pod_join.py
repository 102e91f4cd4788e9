"""Find the network that a pod has in common with the others of its site, if the config names its interface."""

from __future__ import annotations

from dataclasses import dataclass
from subprocess import CalledProcessError

from components.node import packages
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.fabric.networks import FabricError, interfaces
from components.settings.network_names import is_interface


@dataclass(frozen=True)
class PodJoinValues:
    """The site's setting: an interface's name, or a word for none."""

    node_fabric: str


def pod_join(step: Step, values: PodJoinValues) -> None:
    """Report the interface."""
    found = []
    if is_interface(values.node_fabric):
        packages.ensure(step.host, "iproute2")
        try:
            found = interfaces(values.node_fabric, ())
        except (FabricError, OSError, CalledProcessError) as error:
            raise Failure(
                str(error),
                f"write the interface of the pods' own network as fabric: of {step.host}'s site, or remove that key: "
                "then a job has one pod",
            ) from error
    step.result("fabric", {"interfaces": found, "rdma": []})
