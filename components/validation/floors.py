"""The minimum bus bandwidth of healthy hardware, from floors.csv.

A row is one figure of one source: a published floor (fraction 1), or a measurement, of which `fraction` counts because
healthy machines differ. It is valid only for its GPU kind, GPUs per node, number of nodes, transport and collective.
Sockets have no rows, because their bandwidth depends on the network; `make floors` records it.

Between two sizes of one source the floor is interpolated over the logarithm of the size: with each inner row left out
in turn, this is 7 % below to 2 % above the measured values; over bytes it is up to 21 % below. There is no floor
outside a source's sizes.
"""

import csv
import math
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data

from components.validation.collectives import parse_size
from components.validation.expected import NVLINK

_GPUDIRECT = " + GPUDirect RDMA"  # a way to use a network, not a network
_Hardware = tuple[str, int, int, str, str]


@dataclass(frozen=True)
class Floor:
    """The minimum out-of-place bus bandwidth in 1e9 bytes per second, and its source in words."""

    gb_per_s: float
    source: str


def floor_for(
    *, gpu: str, gpus_per_node: int, nodes: int, transport: str, collective: str, size_bytes: int, nvlinks: int = 0
) -> Floor | None:
    """Return the floor of these GPUs at one size; None if no source has one.

    gpu         the kind, such as h200
    transport   such as NVLink, InfiniBand or Libfabric, with or without ` + GPUDirect RDMA`
    nvlinks     NVLinks between two GPUs, which distinguish boards of one kind (H100 SXM has 18, NVL 12); 0 if unknown

    The lowest floor of several sources counts, because every healthy machine must reach it.
    """
    path = transport.removesuffix(_GPUDIRECT)
    candidates = (
        Floor(gb_per_s, source)
        for name in (path, f"{path}{nvlinks}" if path == NVLINK and nvlinks else path)
        for source, figures in _table().get((gpu, gpus_per_node, nodes, name, collective), {}).items()
        if (gb_per_s := _between(figures, size_bytes)) is not None
    )
    return min(candidates, key=lambda floor: floor.gb_per_s, default=None)


@cache
def _table() -> dict[_Hardware, dict[str, dict[int, float]]]:
    """Return the floors by hardware, source and size in bytes."""
    table: dict[_Hardware, dict[str, dict[int, float]]] = {}
    text = get_data("components.validation", "floors.csv") or b""
    for row in csv.DictReader(text.decode().splitlines()):
        hardware = row["gpu"], int(row["gpus_per_node"]), int(row["nodes"]), row["transport"], row["collective"]
        figures = table.setdefault(hardware, {}).setdefault(row["source"], {})
        figures[parse_size(row["size"])] = float(row["gb_per_s"]) * float(row["fraction"])
    return table


def _between(figures: dict[int, float], size_bytes: int) -> float | None:
    below = max((size for size in figures if size <= size_bytes), default=None)
    above = min((size for size in figures if size >= size_bytes), default=None)
    if below is None or above is None:
        return None
    share = math.log(size_bytes / below) / math.log(above / below) if above > below else 0.0
    return figures[below] + share * (figures[above] - figures[below])
