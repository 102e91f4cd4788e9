"""Jobs of a measurement without a Slurm: nodes of a given speed, and the tables that nccl-tests would have printed."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.validation.model import COLLECTIVES
from components.validation.slurm_jobs import Limits, Order

TITLES = "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw  #wrong"


def table(
    nodes: Sequence[str], per_node: int, sizes: Iterable[int], gb_per_s: float, collective: str = "all_reduce"
) -> str:
    """The output of nccl-tests over some nodes, each size at the same bus bandwidth."""
    ranks, kind = len(nodes) * per_node, COLLECTIVES[collective]
    lines = [f"# Collective test starting: {kind.program}", "# Using devices"]
    for rank in range(ranks):
        place = f"device {rank % per_node:2d} [0000:00:06] NVIDIA H200"
        lines.append(f"#  Rank {rank:2d} Group  0 Pid {900 + rank:6d} on {nodes[rank // per_node]:>10} {place}")
    lines += ["#", TITLES]
    figures = []
    for asked in sizes:
        size = kind.size(asked, ranks)
        time = round(size / gb_per_s * kind.factor(ranks) / 1e3, 2)
        algbw = size / time / 1e3
        figures.append(algbw * kind.factor(ranks))
        count = size // 4 // (ranks if kind.shared else 1)
        half = f"  {time:.2f}  {algbw:.2f}  {figures[-1]:.2f}"
        lines.append(
            f"{size:12d}  {count:12d}     float     sum      -1{half}  0{half}  {0 if kind.checks_all else 'N/A'}"
        )
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {math.fsum(figures) / len(figures):g} ", "#"]
    return "\n".join(lines) + "\n"


def log(node: str, *messages: str) -> str:
    """Lines of NCCL's log."""
    return "".join(f"{node}:591:603 [0] NCCL INFO {message}\n" for message in messages)


SOCKETS = (
    "NET/Socket : Using [0]tailscale0:100.64.0.1<0>",
    "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
    "Channel 01/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
)
NVLINK = (
    "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
)
INFINIBAND = (
    "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eno1:10.20.0.4<0>",
    "Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA",
)
NO_RDMA: Mapping[str, Any] = {"rdma": [], "gpus": ["NV18"], "nics": [], "p2p": True, "peermem": False, "dmabuf": False}


@dataclass
class SimulatedSlurm:
    """Runs every order at once. `speed` gives the bus bandwidth of a job's nodes in GB/s, None where it fails."""

    speed: Callable[[tuple[str, ...]], float | None]
    gpus: Mapping[str, str]
    there: Mapping[str, Any] = field(default_factory=lambda: NO_RDMA)
    inside: Sequence[str] = NVLINK
    between: Sequence[str] = SOCKETS
    orders: list[Order] = field(default_factory=list)
    rounds: list[list[tuple[str, ...]]] = field(default_factory=list)
    prepared: str = "COMPLETED"
    second_run: float = 1.0  # its speed / that of the others
    second_time: float = 1.0  # the same, where all is measured once more
    beside: Sequence[str] = ()  # what is on the GPUs, before each run and after the last

    def run(self, orders: Iterable[Order], limits: Limits) -> list[dict[str, Any]]:
        """In the place of slurm_jobs.run_jobs."""
        wanted = list(orders)
        self.orders += wanted
        if any(order.folder.parent.name.startswith("round-") for order in wanted):
            self.rounds.append([order.nodes for order in wanted])
        return [self._report(len(self.orders) - len(wanted) + at, order) for at, order in enumerate(wanted, 1)]

    def _report(self, number: int, order: Order) -> dict[str, Any]:
        report: dict[str, Any] = {
            "job_id": number, "state": "COMPLETED", "exit_code": 0, "seconds": 3, "nodes": list(order.nodes),
            "facts": {}, "output": "", "files": {},
        }  # fmt: skip
        if order.folder.name.startswith("prepare"):
            there = json.dumps(dict(self.there))
            report["output"] = "".join(f"# tailrack there {node} {there}\n" for node in order.nodes)
            report["state"] = self.prepared
            return report
        speed = self.speed(order.nodes)
        if speed is None:
            return {**report, "state": "FAILED", "exit_code": 3, "output": "a: NCCL failure\n"}
        second_run = self.second_time if order.folder.name.endswith("-again") else self.second_run
        report["files"] |= {f"beside.{at}": said for at, said in enumerate(self.beside, 1)}
        for at, run in enumerate(order.arguments[3:], 1):
            words = run.split(":")
            least, most, named = int(words[0]), int(words[1]), words[2:]
            sizes = [least * 4**power for power in range(20) if least * 4**power <= most]
            per_node = int(next(word for word in order.options if "gpus-per-node" in word).partition("=")[2])
            report["files"][f"table.{at}"] = table(
                order.nodes, per_node, sizes, speed * (second_run if at == 2 else 1), *named
            )
            said = self.inside if len(order.nodes) == 1 else self.between
            report["files"] |= {f"log.{at}.{rank}": log(node, *said) for rank, node in enumerate(order.nodes)}
        return report
