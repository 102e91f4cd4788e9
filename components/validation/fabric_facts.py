"""What collect_fabric_facts.py has found on the nodes, read strictly: a line that is not whole is as good as none."""

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
    """One node. `ports` maps each port that is up (`mlx5_0:1`) to INFINIBAND, ROCE or EFA.

    `nvlink`     whether every pair of its GPUs is joined by NVLink; None where that is not known, or there is one GPU
    `meshed`     whether more than half of the pairs are: an NVLink machine, of which some link may be lost
    `p2p`        whether NCCL would by itself let each pair of them read the other over PCIe; None likewise
    `near`       whether a network device is near to a GPU: NCCL has it read the GPU's memory by itself then
    `direct`     whether the driver would let it: by nvidia_peermem, or by DMA-BUF
    """

    ports: Mapping[str, str]
    nvlink: bool | None
    p2p: bool | None
    near: bool
    direct: bool
    meshed: bool = False


def read_fabric_facts(output: str) -> dict[str, FabricFacts]:
    """Node to what it has, for every node whose line is whole; the output of a job may hold anything besides."""
    found: dict[str, FabricFacts] = {}
    for line in output.splitlines():
        if match := _LINE.fullmatch(line.rstrip()):
            try:
                found[match["node"]] = _presence(json.loads(match["there"]))
            except (ValueError, RecursionError):
                found.pop(match["node"], None)
    return found


def _presence(there: Mapping[str, Any]) -> FabricFacts:
    if set(there) - {"meshed"} != {"rdma", "gpus", "nics", "p2p", "peermem", "dmabuf"} or not isinstance(
        there["rdma"], list
    ):
        raise ValueError(there)
    ports = dict(_port(port) for port in there["rdma"] if _is_port(port) and port["up"])
    gpus, nics = _ways(there["gpus"]), _ways(there["nics"])
    peers = {None: None, True: True, False: False}[_truth(there["p2p"])]
    return FabricFacts(
        ports=ports,
        nvlink=None if not gpus else all(way.startswith("NV") for way in gpus),
        p2p=None if not gpus or peers is None else peers and gpus <= _NEAR,
        near=bool(nics and nics & _NEAR),
        direct=_truth(there["peermem"]) is True or _truth(there["dmabuf"]) is True,
        meshed=_truth(there.get("meshed")) is True,
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
