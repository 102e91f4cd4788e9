"""Parse the output of collect_fabric_facts.py strictly: a malformed line is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from components.validation.untrusted import data_in, read

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
            facts[node] = _facts(read(_Node, data))
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
