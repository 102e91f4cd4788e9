"""The hardware of a node that can carry NCCL's data. A job prints it once per node as a plain user; it is read back.

The line `# tailrack there NODE JSON` has:

rdma         RDMA ports in the kernel
gpus, nics   connections of Slurm's GPUs to each other and to those ports, as in `nvidia-smi topo -m` (NV18, PIX, PXB,
             PHB, NODE, SYS)
meshed       whether more than half of the pairs of GPUs have NVLink
p2p          whether the driver allows peer access between all GPUs
peermem      whether nvidia_peermem is loaded
dmabuf       whether the driver is NVIDIA's open one, which supports DMA-BUF

Unknown values are null.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from components.validation.preflight.adapters import data_ports
from components.validation.preflight.findings import HEALTH, health_of
from components.validation.this_node import node_name, output_of, text_of
from components.validation.untrusted import data_in, line_of, read

WORD = "there"
_Way = Annotated[str, r"NV[0-9]+|PIX|PXB|PHB|NODE|SYS"]
_NEAR = frozenset({"PIX", "PXB"})
INFINIBAND, ROCE, EFA = "InfiniBand", "RoCE", "Libfabric"


@dataclass(frozen=True)
class FabricFacts:
    """The hardware of one node. `ports` maps each port that is up (`mlx5_0:1`) to INFINIBAND, ROCE or EFA.

    nvlink     whether every pair of its GPUs has NVLink; None if unknown or with one GPU
    nvlinks    NVLinks of the pair that has most; 0 without any
    meshed     whether more than half of the pairs have: an NVLink machine that may have lost a link
    p2p        whether NCCL uses peer access over PCIe between all pairs by default; None likewise
    near       whether a network device is near a GPU, so that NCCL lets it read GPU memory by default
    direct     whether the driver supports that: by nvidia_peermem, or by DMA-BUF
    """

    ports: Mapping[str, str]
    nvlink: bool | None
    p2p: bool | None
    near: bool
    direct: bool
    meshed: bool = False
    nvlinks: int = 0


@dataclass(frozen=True)
class _Port:
    device: Annotated[str, r"[A-Za-z0-9_.-]{1,64}"]
    port: int
    driver: str
    link: str
    up: bool


@dataclass(frozen=True)
class _Node:
    rdma: tuple[_Port, ...]
    gpus: tuple[_Way, ...] | None
    nics: tuple[_Way, ...] | None
    p2p: bool | None
    peermem: bool | None
    dmabuf: bool | None
    meshed: bool | None = None


def read_fabric_facts(output: str) -> dict[str, FabricFacts]:
    """Return the facts by node for every valid line in a job's output."""
    facts: dict[str, FabricFacts] = {}
    for node, data in data_in(output, WORD).items():
        with suppress(ValueError):
            facts[node] = _facts(read(_Node, data, exact=True))
    return facts


def _facts(node: _Node) -> FabricFacts:
    gpus, nics = {*(node.gpus or ())}, {*(node.nics or ())}
    return FabricFacts(
        ports={f"{port.device}:{port.port}": _fabric(port) for port in node.rdma if port.up},
        nvlink=all(way.startswith("NV") for way in gpus) if gpus else None,
        p2p=node.p2p and gpus <= _NEAR if gpus else None,
        near=bool(nics & _NEAR),
        direct=bool(node.peermem or node.dmabuf),
        meshed=bool(node.meshed),
        nvlinks=max((int(way[2:]) for way in gpus if way.startswith("NV")), default=0),
    )


def _fabric(port: _Port) -> str:
    return INFINIBAND if port.link == INFINIBAND else EFA if port.driver == "efa" else ROCE


LIMIT_SECONDS = 60
PEERMEM = (Path("/sys/module/nvidia_peermem"), Path("/sys/kernel/mm/memory_peers/nv_mem"))
# Connections in topo -m and topo -p2p (OK, CNS, GNS, TNS, NS, DR, U).
WAY = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|OK|[CGT]?NS|DR|U", re.ASCII)
DRIVER = Path("/proc/driver/nvidia/version")


def rdma_ports(root: Path = Path("/"), health: Path = HEALTH) -> list[dict[str, Any]]:
    """Return every data port of RDMA devices."""
    return [
        {"device": port.device, "port": port.number, "driver": port.driver, "link": port.link, "up": port.active}
        for port in data_ports(health_of(health), root)
    ]


def matrix(text: str | None) -> dict[str, dict[str, str]] | None:
    """Return a table of nvidia-smi's topo as {row: {column: word}}; None without a table."""
    if text is None:
        return None
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        fields = [word.strip() for word in line.split("\t")]
        if not columns and "GPU0" in fields:
            columns = fields[1:]
        elif columns and len(fields) > 1 and re.fullmatch(r"(GPU|NIC)\d+", fields[0]):
            rows[fields[0]] = dict(zip(columns, fields[1:], strict=False))
    return rows or None


def ways(table: dict[str, dict[str, str]] | None, kind: str) -> list[str] | None:
    """Return the connections between GPUs and columns of a kind, each once; None if unknown.

    Other words (`ERR!`, an empty cell) are ignored.
    """
    return None if table is None else sorted({*_pairs(table, kind).values()})


def _pairs(table: dict[str, dict[str, str]], kind: str) -> dict[tuple[str, str], str]:
    return {
        (row, column): word
        for row, cells in table.items()
        for column, word in cells.items()
        if row.startswith("GPU") and re.fullmatch(kind + r"\d+", column) and row != column and WAY.fullmatch(word)
    }


def meshed(table: dict[str, dict[str, str]] | None) -> bool | None:
    """Whether more than half of the pairs of GPUs have NVLink; None if unknown.

    This holds behind switches and in a cube of eight, even if a GPU has lost its links, but not for bridged pairs.
    """
    pairs = _pairs(table or {}, "GPU")
    return sum(word.startswith("NV") for word in pairs.values()) * 2 > len(pairs) if pairs else None


def main(_: Sequence[str]) -> None:
    """Print the line."""
    topology = matrix(output_of("nvidia-smi", "topo", "-m", seconds=LIMIT_SECONDS))
    peers = ways(matrix(output_of("nvidia-smi", "topo", "-p2p", "r", seconds=LIMIT_SECONDS)), "GPU")
    facts = {
        "rdma": rdma_ports(),
        "gpus": ways(topology, "GPU"),
        "nics": ways(topology, "NIC"),
        "meshed": meshed(topology),
        "p2p": None if not peers else peers == ["OK"],
        "peermem": any(path.exists() for path in PEERMEM),
        "dmabuf": "Open Kernel Module" in text_of(DRIVER),
    }
    sys.stdout.write(line_of(WORD, node_name(), facts) + "\n")
