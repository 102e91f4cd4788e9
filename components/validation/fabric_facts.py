"""Parse the output of collect_fabric_facts.py strictly: a malformed line is ignored."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(r"# tailrack there (?P<node>[A-Za-z0-9][\w.-]*) (?P<there>\{.*\})", re.ASCII)
_WAY = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS", re.ASCII)
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_KEYS = frozenset({"rdma", "gpus", "nics", "p2p", "peermem", "dmabuf"})
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


def read_fabric_facts(output: str) -> dict[str, FabricFacts]:
    """Return the facts by node for every valid line in a job's output."""
    facts: dict[str, FabricFacts] = {}
    for line in output.splitlines():
        if match := _LINE.fullmatch(line.rstrip()):
            try:
                facts[match["node"]] = _facts(json.loads(match["there"]))
            except (ValueError, RecursionError):
                facts.pop(match["node"], None)
    return facts


def _facts(data: Mapping[str, Any]) -> FabricFacts:
    if set(data) - {"meshed"} != {"rdma", "gpus", "nics", "p2p", "peermem", "dmabuf"} or not isinstance(
        data["rdma"], list
    ):
        raise ValueError(data)
    ports = dict(_port(port) for port in data["rdma"] if _is_port(port) and port["up"])
    gpus, nics = _ways(data["gpus"]), _ways(data["nics"])
    peers = {None: None, True: True, False: False}[_truth(data["p2p"])]
    return FabricFacts(
        ports=ports,
        nvlink=None if not gpus else all(way.startswith("NV") for way in gpus),
        p2p=None if not gpus or peers is None else peers and gpus <= _NEAR,
        near=bool(nics and nics & _NEAR),
        direct=_truth(data["peermem"]) is True or _truth(data["dmabuf"]) is True,
        meshed=_truth(data.get("meshed")) is True,
        nvlinks=max((int(way[2:]) for way in gpus or () if way.startswith("NV")), default=0),
    )


def _truth(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(value)


def _ways(value: object) -> frozenset[str] | None:
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(way, str) and _WAY.fullmatch(way) for way in value):
        return frozenset(value)
    raise ValueError(value)


def _is_port(value: object) -> bool:
    if (
        isinstance(value, Mapping)
        and all(isinstance(value.get(key), str) for key in ("device", "driver", "link"))
        and _NAME.fullmatch(value["device"])
        and isinstance(value.get("port"), int)
        and isinstance(value.get("up"), bool)
    ):
        return True
    raise ValueError(value)


def _port(port: Mapping[str, Any]) -> tuple[str, str]:
    fabric = INFINIBAND if port["link"] == "InfiniBand" else EFA if port["driver"] == "efa" else ROCE
    return f"{port['device']}:{port['port']}", fabric
