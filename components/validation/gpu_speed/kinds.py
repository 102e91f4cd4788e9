"""The figures that a healthy GPU of a kind reaches, from kinds.csv.

A row has the datasheet's figures (host: one direction; matrix: bf16 without sparsity, fp16 for V100) and the share of
each that a healthy GPU reaches at least. Measured: an H200 copies at 0.88 of its link and of its memory's bandwidth,
and multiplies at 0.73 to 0.77. The other shares are estimates, low because a power limit holds small cards down.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data


@dataclass(frozen=True)
class Kind:
    """Figures of a healthy GPU: GB/s to and from the host and in its memory, TFLOP/s."""

    title: str
    host: float
    memory: float
    matrix: float


def kind_of(name: str) -> Kind | None:
    """Return the kind of a product name; None if the table does not have it."""
    return _table().get(name)


@cache
def _table() -> Mapping[str, Kind]:
    text = get_data("components.validation.gpu_speed", "kinds.csv") or b""
    return {
        row["name"]: Kind(
            row["title"],
            float(row["host_gb_per_s"]) * float(row["host_share"]),
            float(row["memory_gb_per_s"]) * float(row["memory_share"]),
            float(row["matrix_tflops"]) * float(row["matrix_share"]),
        )
        for row in csv.DictReader(text.decode().splitlines())
    }
