"""Record the network of a pod, and report its neighbours there, which the pod then tries to reach."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from components.node import files
from components.node.step.step import Step
from components.roles.fabric.prove import NodeNetworks, records
from components.roles.slurm.paths import NODES
from components.settings.network_names import is_interface

_MOST_NEIGHBOURS = 4


@dataclass(frozen=True)
class PodNetwork(NodeNetworks):
    """The pod, with its tailnet address."""

    node_address: str


def pod_register(step: Step, values: PodNetwork) -> None:
    """Record it, and report the pods of its site that came before."""
    name, neighbours = values.node_name, []
    if is_interface(values.node_fabric):
        networks: dict[str, Any] = json.loads(values.node_networks)
        mine = {"node": name, "site": values.node_site, "setting": values.node_fabric, "address": values.node_address}
        # Without groups: jobs over several pods take their interface from the config.
        record = {**mine, **networks, "since": time.time(), "groups": {}, "unproven": False, "asked": 0.0}
        files.make_folder(f"{NODES}/{name}")
        with records().locked():
            records().save(record)
            others = records().others(record)
        neighbours = [
            {
                "name": other["node"],
                "address": other["interfaces"][0]["address"].partition("/")[0],
                "tailnet": other["address"],
            }
            for other in others[:_MOST_NEIGHBOURS]
        ]
    else:
        files.remove(f"{NODES}/{name}/fabric.json")
    step.result("neighbours", neighbours)
