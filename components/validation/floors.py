"""The least bus bandwidth that sound hardware gives, from floors.csv.

A row is one figure of one source: a published floor (fraction 1), or a published or own measurement, of which
`fraction` is taken, because sound machines of a kind differ. What the source is, and why that fraction, stands in the
row.

A figure holds for its GPU kind, GPUs a node, number of nodes, transport and collective alone; nothing is concluded from
one count to another. Sockets have no rows: what they give is a property of the network at hand, and `make floors`
writes that down.

Between two sizes of one source the floor lies on the straight line over the logarithm of the size. With each inner row
left out in turn, that line is 7 % below to 2 % above what the sources measured there; a line over the bytes is up to
21 % below. Below the smallest and above the largest size of a source there is no floor.
"""

import csv
import math
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data

from components.validation.sizes import parse_size

_GPUDIRECT = " + GPUDirect RDMA"  # how a network was used, and not which one it is
_Hardware = tuple[str, int, int, str, str]


@dataclass(frozen=True)
class Floor:
    """The least out-of-place bus bandwidth, 1e9 bytes a second, and in words where that is from."""

    gb_per_s: float
    source: str


def floor_for(
    *, gpu: str, gpus_per_node: int, nodes: int, transport: str, collective: str, size_bytes: int
) -> Floor | None:
    """The floor of these GPUs at one size; None where no source speaks of them.

    gpu         the kind, such as h200
    transport   such as NVLink, InfiniBand or Libfabric, with or without ` + GPUDirect RDMA`
    collective  such as all_reduce

    Of several sources the lowest speaks: a floor is what every sound machine reaches.
    """
    hardware = (gpu, gpus_per_node, nodes, transport.removesuffix(_GPUDIRECT), collective)
    known = (
        Floor(found, source)
        for source, figures in _table().get(hardware, {}).items()
        if (found := _between(figures, size_bytes)) is not None
    )
    return min(known, key=lambda floor: floor.gb_per_s, default=None)


@cache
def _table() -> dict[_Hardware, dict[str, dict[int, float]]]:
    """Hardware to source to floors by size in bytes."""
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
