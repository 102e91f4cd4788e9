"""A cluster of virtual machines: what tests/lab asks of a cluster, on machines with a kernel of their own."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from cli.pulumi.find_engine import Found
from cli.run_events import Summary
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, dev_config
from tests.lab.machine_state import state_of
from tests.machines.machines import CONTROL, Machine


class MachineCluster(ClusterUnderTest):
    """The stack `machines`: the head node at site `office`, nodes at site `rack`, `config` with those that joined."""

    def __init__(self, folder: Path, machines: Mapping[str, Machine]) -> None:
        config = dev_config()
        config["tailrack:cluster"] = {"name": "machines"}
        config["tailrack:head"] = {"name": "head", "site": "office"}
        config["tailrack:users"] = [{"name": "ada", "uid": 6001}, {"name": "bob", "uid": 6002}]
        # No database can be installed without a network.
        config["tailrack:accounting"] = {"enabled": False}
        config["tailrack:tailnet"] = {"kind": "control_url", "control_url": f"http://{CONTROL}:8080"}
        config["tailrack:validation"] = {**SMALL_MEASUREMENT, "floors_gb_per_s": {}}
        super().__init__("machines", folder, Found(None, "in-process, as it needs no network"), config)
        self.machines = machines

    def have(self, *nodes: str) -> None:
        """Write these nodes into the config; the head node is there always."""
        self.config["tailrack:sites"] = [
            {"name": "office", "kind": "hosts", "hosts": [self.machines["head"].host()]},
            {"name": "rack", "kind": "hosts", "hosts": [self.machines[name].host() for name in nodes]},
        ]

    def up(self) -> Summary:
        """Bring it to its config; again, where an emulated machine was too busy to answer within the engine's limit."""
        summary = super().up()
        if self._was_too_busy(summary):
            before = self.events
            summary = super().up()
            self.events = before + self.events
        return summary

    def down(self) -> Summary:
        """Take the stack down; again where an `up` is done again."""
        summary = self.deployment().destroy()
        return self.deployment().destroy() if self._was_too_busy(summary) else summary

    def _was_too_busy(self, summary: Summary) -> bool:
        emulated = self.machines["head"].slowness > 1
        return emulated and any("failed attempts" in failure.message for failure in summary.failures)

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that the config has."""
        return [host["name"] for host in self.config["tailrack:sites"][1]["hosts"]]

    def run_job(self, words: str) -> str:
        """Have ada's batch job run; return its number."""
        number = self.run_as("ada", "head", f"sbatch --parsable {words}").strip()
        self.eventually(lambda: self.job_state(number) == "RUNNING", 60, "the job runs")
        return number

    def job_state(self, number: str) -> str:
        """Slurm's word for the state of a job."""
        return self.shown(f"job {number}", "JobState")

    def node_state(self, name: str) -> str:
        """Slurm's word for the state of a node, without what it says besides."""
        return self.shown(f"node {name}", "State").partition("+")[0]

    def shown(self, what: str, field: str) -> str:
        """Return a field of what Slurm shows; empty while slurmctld does not answer."""
        words = self.attempt("head", f"scontrol show {what}").stdout.split()
        return next((word.removeprefix(f"{field}=") for word in words if word.startswith(f"{field}=")), "")

    def gid_index(self, node: str) -> str:
        """Where the RDMA device of a node has its RoCE v2 address made of an IPv4 one."""
        here = "/sys/class/infiniband/rxe0/ports/1"
        look = f"grep -l 'RoCE v2' {here}/gid_attrs/types/* 2>/dev/null | xargs -n1 basename"
        for index in self.run(node, look).split():
            if ":ffff:" in self.run(node, f"cat {here}/gids/{index}"):
                return index
        raise AssertionError(f"{node} has no such address")

    def note_state(self, node: str) -> None:
        """Keep what there is on a machine before it joins, for the day it leaves."""
        kept = self._state_before(node)
        if not kept.exists():
            kept.write_text("\n".join(sorted(state_of(self, node))))

    def state_before(self, node: str) -> set[str]:
        """What note_state has kept."""
        return set(self._state_before(node).read_text().split("\n"))

    def _state_before(self, node: str) -> Path:
        return self.machines[node].place / f"{node}.before"

    def attempt(self, node: str, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command as root; the limit, in seconds, is longer where machines are emulated."""
        return self.machines[node].attempt(command, limit)

    def eventually(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until a condition holds; longer where machines are emulated."""
        self.machines["head"].eventually(condition, seconds, what)

    def remove(self) -> None:
        """Nothing is left to remove once the namespaces of the tests are gone, but what the engine knows."""
        self.deployment().workspace.forget()
