"""An elastic pool in the lab of a cluster under test, its controllers, and what users see of its jobs."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from tests.lab.cluster import ClusterUnderTest
from tests.lab.pool_under_test import PoolUnderTest


class ElasticStack(PoolUnderTest):
    """An elastic pool in the lab of a cluster under test."""

    def what_slurm_says(self) -> str:
        """Return what the cluster's Slurm says of a test that failed, and the controllers' output."""
        return super().what_slurm_says() + self.log()

    @contextmanager
    def controller(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run `make elastic` in a process group of its own."""
        with (self.folder / "elastic.log").open("a", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["env", "--default-signal=INT", *self.driver("elastic", *words)],
                cwd=PROJECT, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def remove(self) -> None:
        """Destroy the pool, and print what its controllers said."""
        print(self.log())
        super().remove()

    def log(self) -> str:
        """Return the output of all controllers."""
        file = self.folder / "elastic.log"
        return file.read_text(encoding="utf-8") if file.exists() else "no controller ran"


class ElasticPool(ElasticStack):
    """A pool of two placeholders, `e1` and `e2` at site `cloud-e`, whose machines are lab machines."""

    def __init__(self, cluster: ClusterUnderTest, folder: Path, found: Found) -> None:
        config = {
            "tailrack:elastic": {"max": 2, "idle_minutes": 1, "boot_minutes": 15, "cpus": 1, "memory_gb": 1},
            "tailrack:sites": [
                {"name": "cloud-e", "kind": "lab", "fabric": "tailnet", "pools": [{"name": "e", "count": 3}]}
            ],
        }
        super().__init__(cluster, "e", folder, found, config)

    def rented(self) -> set[str]:
        """Return the machines that exist."""
        names = subprocess.run(
            ["docker", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
        ).stdout.split()
        return {name for name in ("e1", "e2", "e3") if self.container(name) in names}


def submit(cluster: ClusterUnderTest, command: str, *options: str, partition: str = "cloud-e") -> str:
    """Submit a job of ada's to the pool's partition; return its number."""
    words = " ".join(["sbatch", "--parsable", "-p", partition, *options, f"--wrap '{command}'"])
    return cluster.run_as("ada", "head", words).strip()


def flags(cluster: ClusterUnderTest, node: str) -> str:
    """Return a node's states in Slurm."""
    shown = cluster.run("head", f"scontrol show node {node}")
    match = re.search(r"State=(\S+)", shown)
    assert match, shown
    return match[1]


def is_down(cluster: ClusterUnderTest, node: str) -> bool:
    """Return whether a node is down, which POWERED_DOWN is not."""
    return "DOWN" in flags(cluster, node).split("+")


def output(cluster: ClusterUnderTest, name: str) -> str:
    """Return the output of a job in ada's home; empty without one."""
    return cluster.attempt("head", f"cat /shared/home/ada/{name}").stdout.strip()
