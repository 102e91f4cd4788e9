"""How long `up` takes until nodes are usable, machines that answer SSH given; and how long one more takes to join.

The machines have the cluster's packages in them, are made before, and are hosts of a stack: containers of a lab, or,
on a machine with many cores and no Docker, those that tests/gpu/run.sh makes. For each `up`: the seconds from the first
look at a machine to the last node that Slurm gives jobs to, the steps by kind (the middle one and the longest), the
critical path (each step with the one that it waited for), how often slurmctld was reconfigured, and how many processes
and threads the whole machine started. Then the third
node joins a cluster of two, and the thirty-third one of thirty-two that has come to rest: those have no part in it,
but a lab's machines share few cores, so they have only what the one that joins, the head node and the control server
leave of them. Machines that have other things to do make all of it longer: the load is printed, and the seconds of the
CPU that the machines had for it. Most of that is what starting processes takes, so the peer is a shell that starts a
thousand of them right before; `x` says how often it could have done so meanwhile. Then the same without accounting and
health checks, and right after it bash alone builds such a cluster of containers, which has neither
(bench/plain_cluster.py): the floor, and how many times as long tailrack took. Nothing is judged.

`python -m bench.usable_nodes 3,8 3,33`: clusters that are brought up at once, and nodes that join, or `none` of them;
as many as the memory has room for (some 60 MB a machine).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.machines import Containers, Host, Machines
from bench.machines_in_namespaces import Namespaces
from bench.plain_cluster import plain_seconds
from bench.up_times import engine, insist, seconds_of
from cli.pulumi.deployment import Deployment, stack_config
from cli.pulumi.find_engine import find_engine
from cli.pulumi.workspace import PROJECT, Workspace
from cli.run_events import Event
from components.steps.label import StepLabel

STACK = "nodes"
HEAD = "head"
KINDS = ("prepare", "head", "register", "node")
# Services that the floor does not have.
WITHOUT = {f"tailrack:{name}": {"enabled": False} for name in ("accounting", "health")}


@dataclass(frozen=True)
class Part:
    """A step that was done: its name, and when it began and ended, in seconds of one clock."""

    name: str
    begun: float
    ended: float

    @property
    def kind(self) -> str:
        """`prepare`, `head` and so on."""
        return self.name.rpartition("-")[2]

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


def critical_path(parts: Sequence[Part], last: Part) -> list[Part]:
    """Return the steps that the last one waited for, one after the other: of all that had ended, the latest to end."""
    path = [last]
    while before := [part for part in parts if part.ended <= path[0].begun + 0.05 and part not in path]:
        path.insert(0, max(before, key=lambda part: part.ended))
    return path


def busy_share() -> float:
    """The part of this machine's CPUs that was busy during two seconds."""

    def times() -> tuple[int, int]:
        user, nice, system, idle, waiting, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
        return user + nice + system, idle + waiting

    before = times()
    time.sleep(2)
    busy, idle = (after - first for after, first in zip(times(), before, strict=True))
    return busy / (busy + idle)


def come_to_rest(share: float) -> None:
    """Wait until at most this share of the CPUs is busy: a node that has just joined runs its health check first."""
    end = time.monotonic() + 120
    while busy_share() > share and time.monotonic() < end:
        pass


def thousand_processes() -> float:
    """Seconds in which a shell on this machine starts a thousand processes, one after the other."""
    command = ["bash", "-c", "for ((i = 0; i < 1000; i++)); do /bin/true; done"]
    return seconds_of(lambda: subprocess.run(command, check=True))


def started() -> int:
    """Return how many processes and threads this machine has started since it booted."""
    (line,) = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("processes ")]
    return int(line.split()[1])


class Bench:
    """A lab of one head node that computes and some nodes at its site."""

    def __init__(self, folder: Path, machines: Machines) -> None:
        self._folder, self._parts, self._clusters = folder, list[Part](), 0
        self._machines = machines
        self._config = yaml.safe_load(stack_config(PROJECT, "dev").read_text(encoding="utf-8"))
        self._engine = find_engine(engine())
        self._hosts, self._peer = list[Host](), 1.0
        self._cpu, self._before = dict[str, float](), dict[str, float]()
        self._started, self._started_before = 0, 0
        self._more: Mapping[str, object] = {}

    def _keep(self, event: Event) -> None:
        if event.kind == "done" and event.operation in ("create", "update") and StepLabel.of(event.command):
            now = time.monotonic()
            self._parts.append(Part(event.name, now - event.seconds, now))
            if self._parts[-1].kind in ("head", "node"):
                taken = self._machines.cpu_seconds()
                self._cpu = {name: seconds - self._before[name] for name, seconds in taken.items()}
                self._started = started() - self._started_before

    def _deployment(self, nodes: int) -> Deployment:
        # The head node is one of them.
        site = {"name": "rack", "kind": "hosts", "hosts": self._hosts[:nodes]}
        of_head = {"name": HEAD, "site": "rack", "compute": True, "accept_root_risk": True}
        self._config["config"] |= {"tailrack:sites": [site], "tailrack:head": of_head, **self._machines.config}
        self._config["config"]["tailrack:tailnet"]["control_url"] = "http://control.lab:8080"
        # Ranks on all nodes of a lab would keep its cores from the nodes that come for minutes.
        self._config["config"]["tailrack:validation"] |= {"floors_gb_per_s": {}, "nodes": [HEAD, "n1"]}
        file = self._folder / f"Pulumi.{STACK}.yaml"
        config = {**self._config, "config": self._config["config"] | self._more}
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return Deployment(
            Workspace(PROJECT, STACK, file, self._folder / f"state-{self._clusters}"), self._engine, self._keep
        )

    @contextmanager
    def cluster(self, nodes: int, machines: int) -> Iterator[list[Part]]:
        """Bring so many of some machines up as a cluster, with these steps, and all of them away again."""
        self._clusters += 1
        with self._machines.made([HEAD, *(f"n{number}" for number in range(1, machines))]) as self._hosts:
            # They answer SSH, and some of them start their last services still.
            come_to_rest(0.2)
            yield self.up(nodes)

    def up(self, nodes: int) -> list[Part]:
        """Bring the cluster to so many nodes; the steps that were run for it."""
        self._parts.clear()
        self._peer = thousand_processes()
        self._before = self._machines.cpu_seconds()
        self._started_before = started()
        insist(self._deployment(nodes).up())
        return [part for part in self._parts if part.kind in KINDS]

    def reconfigured(self) -> int:
        """Return how often slurmctld was reconfigured since it started."""
        log = self._machines.says(HEAD, "journalctl -u slurmctld -o cat --no-pager")
        return log.count("Processing Reconfiguration Request")

    def tell_up(self, nodes: int) -> None:
        """Print the times of an `up` of so many nodes, and of one of a cluster with no more than the floor."""
        self._tell_up(nodes, "")
        self._more = WITHOUT
        seconds = self._tell_up(nodes, ", no accounting, no health")
        self.tell_floor(nodes, seconds)
        self._more = {}

    def _tell_up(self, nodes: int, kind: str) -> float:
        with self.cluster(nodes, nodes) as parts:
            calls = self.reconfigured()
        usable = max((part for part in parts if part.kind in ("node", "head")), key=lambda part: part.ended)
        begun = min(part.begun for part in parts)
        seconds = usable.ended - begun
        print(
            f"{nodes:3} usable nodes{kind} {seconds:6.1f} s {seconds / self._peer:5.1f} x   reconfigured {calls}   "
            f"load {os.getloadavg()[0]:.1f}   CPU {sum(self._cpu.values()):.1f} s   started {self._started:,}"
        )
        by_kind = defaultdict[str, list[float]](list)
        for part in parts:
            by_kind[part.kind].append(part.seconds)
        for kind in KINDS:
            if taken := by_kind[kind]:
                print(f"    {kind:7} {statistics.median(taken):6.1f} s, longest {max(taken):.1f} s, of {len(taken)}")
        path = critical_path(parts, usable)
        print("    " + " > ".join(f"{part.name} {part.seconds:.1f}" for part in path), flush=True)
        return seconds

    def tell_floor(self, nodes: int, seconds: float) -> None:
        """Print how long bash alone takes, and the ratio: of the seconds, and of the CPU of the nodes but the head."""
        if not isinstance(self._machines, Containers):
            return
        names = [HEAD, *(f"n{number}" for number in range(1, nodes))]
        with self._machines.made(names):
            come_to_rest(0.2)
            floor, cpu = plain_seconds(self._machines, names)
        joined, plain = (statistics.mean(taken[name] for name in names[1:]) for taken in (self._cpu, cpu))
        print(
            f"    floor   {floor:6.1f} s, {seconds / floor:.1f} times that; CPU of a node {joined:.1f} s, floor "
            f"{plain:.1f} s, {joined / plain:.1f} times that",
            flush=True,
        )

    def tell_join(self, nodes: int) -> None:
        """Print the times of the last node to join."""
        with self.cluster(nodes - 1, nodes):
            come_to_rest(0.5)
            self._machines.prefer({HEAD, f"n{nodes - 1}"})
            before = self.reconfigured()
            parts = self.up(nodes)
            calls = self.reconfigured() - before
        node_parts = [part for part in parts if part.name.startswith(f"n{nodes - 1}-")]
        taken = max(part.ended for part in node_parts) - min(part.begun for part in node_parts)
        steps = ", ".join(f"{part.kind} {part.seconds:.1f}" for part in node_parts)
        # Those of its own it would have anywhere; the others' are of machines that share its cores.
        joins, head = (self._cpu[name] for name in (f"n{nodes - 1}", HEAD))
        print(
            f"node {nodes:2} joins {taken:6.1f} s {taken / self._peer:5.1f} x ({steps})   reconfigured {calls}   "
            f"load {os.getloadavg()[0]:.1f}   CPU {joins:.1f} s, head {head:.1f} s, "
            f"others {sum(self._cpu.values()) - joins - head:.1f} s   started {self._started:,}",
            flush=True,
        )


def counts(argv: Sequence[str], place: int, default: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers in a word with commas between, or the default."""
    if argv[place : place + 1] == ["none"]:
        return ()
    return tuple(map(int, argv[place].split(","))) if len(argv) > place and argv[place] else default


def main() -> None:
    """Measure and print."""
    machines = Namespaces() if Namespaces.are_here() else Containers(STACK)
    print(f"{machines.kind}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), machines)
        for nodes in counts(sys.argv, 1, (3, 8)):
            bench.tell_up(nodes)
        for nodes in counts(sys.argv, 2, (3, 33)):
            bench.tell_join(nodes)


if __name__ == "__main__":
    main()
