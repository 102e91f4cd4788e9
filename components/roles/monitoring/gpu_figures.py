"""GPUs of this machine. Pure, from a query of nvidia-smi."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from components.roles.monitoring.exposition import Metric, Sample

_MIB = 2**20
# Field of nvidia-smi, name, help, and what one of its units is in ours.
_FIGURES = (
    ("utilization.gpu", "tailrack_gpu_utilization_ratio", "Share of the last second in which a kernel ran.", 0.01),
    ("memory.used", "tailrack_gpu_memory_used_bytes", "Memory in use.", _MIB),
    ("memory.total", "tailrack_gpu_memory_bytes", "Memory.", _MIB),
    ("temperature.gpu", "tailrack_gpu_temperature_celsius", "Temperature of the chip.", 1),
    ("power.draw", "tailrack_gpu_power_watts", "Power.", 1),
    (
        "ecc.errors.uncorrected.volatile.total",
        "tailrack_gpu_uncorrected_errors",
        "Memory errors since the driver was loaded that ECC could not correct.",
        1,
    ),
)
QUERY: Sequence[str] = (
    "nvidia-smi",
    f"--query-gpu=index,name,{','.join(field for field, *_ in _FIGURES)}",
    "--format=csv,noheader,nounits",
)


def gpu_figures(said: str) -> list[Metric]:
    """Return figures of each GPU. What a GPU does not have (`[N/A]`) is left out, and so is a sentence beside the rows.

    Raises ValueError for what has no row of its form.
    """
    lines = [[cell.strip() for cell in row] for row in csv.reader(said.splitlines()) if row]
    rows = [row for row in lines if len(row) == len(_FIGURES) + 2 and row[0].isdecimal()]
    if lines and not rows:
        raise ValueError("nvidia-smi does not print what it was asked for")
    count = Metric("tailrack_gpus", "GPUs that nvidia-smi shows.", [({}, len(rows))])
    return [
        count,
        *(
            Metric(name, text, _samples(rows, place, unit))
            for place, (_, name, text, unit) in enumerate(_FIGURES, start=2)
        ),
    ]


def _samples(rows: Sequence[Sequence[str]], place: int, unit: float) -> list[Sample]:
    found: list[Sample] = []
    for row in rows:
        try:
            found.append(({"gpu": row[0], "kind": row[1]}, float(row[place]) * unit))
        except ValueError:
            continue
    return found
