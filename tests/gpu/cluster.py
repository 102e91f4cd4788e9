"""A cluster of machines with GPUs: what tests/lab asks of a cluster, on machines that are not containers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driver.find_engine import Found
from tests.gpu.machines import CONTROL, Machine
from tests.lab.cluster import ClusterUnderTest, dev_config

PROGRAM = "/usr/local/bin/all_reduce_perf"
SITE_OF = {"head": "rack", "a": "rack", "b": "rack", "c": "box"}


class GpuCluster(ClusterUnderTest):
    """The stack `gpus`; `machines` are those that there are, in the cluster or not."""

    def __init__(self, folder: Path, machines: Mapping[str, Machine]) -> None:
        config = dev_config()
        config["tailrack:cluster"] = {"name": "gpus"}
        config["tailrack:head"] = {"name": "head", "site": "rack"}
        config["tailrack:users"] = [{"name": "ada", "uid": 6001}]
        config["tailrack:tailnet"] = {"control_url": f"http://{CONTROL}:8080"}
        config["tailrack:validation"] = {}
        super().__init__("gpus", folder, Found(None, "in-process, as no Pulumi CLI is here"), config)
        self.machines = machines

    def has(self, *nodes: str, **validation: Any) -> None:
        """Have these nodes and the head node in it, measured as `validation` asks."""
        sites: dict[str, list[dict[str, Any]]] = {}
        for name in ("head", *nodes):
            sites.setdefault(SITE_OF[name], []).append(self._host(self.machines[name]))
        self.config["tailrack:sites"] = [
            {"name": name, "kind": "hosts", "hosts": hosts} for name, hosts in sites.items()
        ]
        self.config["tailrack:validation"] = validation
        self.up_ok()

    @staticmethod
    def _host(machine: Machine) -> dict[str, Any]:
        gpus = {"gpu": f"{machine.gpus[0].kind}:{len(machine.gpus)}"} if machine.gpus else {}
        return {**machine.host(), **gpus}

    def attempt(self, node: str, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
        return self.machines[node].attempt(command, limit)

    def remove(self) -> None:
        """Nothing is left to remove once the namespaces of the tests are gone."""
