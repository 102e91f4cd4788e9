"""A cluster of machines with GPUs: what tests/lab asks of a cluster, on machines that are not containers."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.pulumi.find_engine import Found
from tests.gpu.machines import CONTROL, FABRIC, PLACE, PROGRAM, Machine, run
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, dev_config

SITES: Mapping[str, dict[str, Any]] = {
    "rack": {"nodes": ("head", "a", "b"), "fabric": FABRIC},
    "box": {"nodes": ("c",), "fabric": "tailnet"},
}
# Seconds, not figures: sockets over the tailnet carry less than a GB/s.
QUICK = {
    "program": PROGRAM,
    "min_bytes": "16M",
    "max_bytes": "1G",
    "socket_max_bytes": "64M",
    "iterations": 5,
    "warmup": 1,
}
# Far below what there is.
LOW = {"node": 1, "box": 1, "rack": 0.05, "cross-site": 0.05}


class GpuCluster(ClusterUnderTest):
    """The stack `gpus` of all machines."""

    def __init__(self, folder: Path, machines: Mapping[str, Machine]) -> None:
        config = dev_config()
        config["tailrack:cluster"] = {"name": "gpus"}
        config["tailrack:head"] = {"name": "head", "site": "rack"}
        config["tailrack:users"] = [{"name": "ada", "uid": 6001}]
        # No database can be installed without a network.
        config["tailrack:accounting"] = {"enabled": False}
        config["tailrack:tailnet"] = {"control_url": f"http://{CONTROL}:8080"}
        config["tailrack:sites"] = [
            {
                "name": name,
                "kind": "hosts",
                "fabric": site["fabric"],
                "hosts": [self._host(machines[node]) for node in site["nodes"]],
            }
            for name, site in SITES.items()
        ]
        super().__init__("gpus", folder, Found(None, "in-process, as no Pulumi CLI is here"), config)
        self.machines = machines

    @property
    def on_gpus(self) -> bool:
        """Whether there are GPUs, and this is no rehearsal."""
        return bool(self.machines["c"].gpus)

    def need(self, gpus: int) -> None:
        """Skip a test where c has fewer GPUs."""
        if len(self.machines["c"].gpus) < gpus:
            pytest.skip(f"{gpus} GPUS ARE NOT TESTED: this machine has fewer")

    def measured(self, **validation: Any) -> None:
        """Bring it up, measured quickly, but for what `validation` asks."""
        on_gpus = {"nccl": QUICK, "floors_gb_per_s": LOW} if self.on_gpus else {}
        self.config["tailrack:validation"] = {**SMALL_MEASUREMENT, **on_gpus, **validation}
        self.up_ok()

    @staticmethod
    def _host(machine: Machine) -> dict[str, Any]:
        gpus = {"gpu": f"{machine.gpus[0].kind}:{len(machine.gpus)}"} if machine.gpus else {}
        return {**machine.host(), **gpus}

    def give(self, user: str, folder: Path) -> None:
        home = PLACE / "disk/head/shared/home" / user
        shutil.copytree(folder, home / folder.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        run("chown", "-R", "--reference", home, home / folder.name)

    @property
    def all_gpus(self) -> str:
        """sbatch's words for all GPUs of c, a task each."""
        gpus = len(self.machines["c"].gpus)
        return f"-w c -N1 --gpus-per-node={gpus} --ntasks-per-node={gpus} --cpus-per-task=4"

    def attempt(self, node: str, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
        return self.machines[node].attempt(command, limit)

    def remove(self) -> None:
        """Nothing is left to remove once the namespaces of the tests are gone."""
