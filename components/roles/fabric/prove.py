"""Prove a node's fabric on the head node as it joins, and again later where no node answered.

Slurm distributes what is proven to all nodes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.fabric.groups import prove_again, prove_node
from components.roles.fabric.networks import FabricError
from components.roles.fabric.records import Records
from components.roles.slurm.offer import offer
from components.roles.slurm.paths import NODES
from components.settings.network_names import ON_THE_TAILNET


@dataclass(frozen=True)
class NodeNetworks:
    """A node, its site, the site's setting, and the networks that may be the node's fabric, as JSON."""

    node_name: str
    node_site: str
    node_fabric: str
    node_networks: str


def records() -> Records:
    """Return the head node's records."""
    return Records(Path(files.on_disk(NODES)))


def prove_fabric(step: Step, values: NodeNetworks, address: str) -> None:
    """Prove the fabric of the node with a tailnet address."""
    name = values.node_name
    if values.node_fabric == ON_THE_TAILNET:
        files.remove(f"{NODES}/{name}/fabric")
        files.remove(f"{NODES}/{name}/fabric.json")
        return
    facts = {"node": name, "site": values.node_site, "setting": values.node_fabric, "address": address}
    try:
        answer = prove_node(records(), {**json.loads(values.node_networks), **facts})
    except (FabricError, OSError, CalledProcessError) as error:
        raise Failure(
            f"the fabric of {name} cannot be proven: {error}",
            "see 'journalctl -u tailrack-fabric@*' there; or set fabric: tailnet at its site to use no fabric",
        ) from error
    note(f"fabric: {json.dumps(answer)}")
    if answer["error"]:
        raise Failure(
            answer["error"],
            f"see 'ip address' and firewalls on {name}; or set fabric: auto, tailnet or another interface at site "
            f"{values.node_site}",
        )
    step.result("fabric", answer)


def again(step: Step) -> None:
    """Retry the proofs, and give slurmctld what is proven now."""
    answer = prove_again(records())
    if not answer["proven"]:
        return
    note(f"proven: {json.dumps(answer)}")
    step.take_lock()
    if reason := offer(names=["topology.conf"]):
        raise Failure(reason, "see 'journalctl -u slurmctld'")
