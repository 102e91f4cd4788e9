"""Metrics of this machine's GPUs, from nvidia-smi. Pure."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from components.roles.monitoring.exposition import Metric, Sample

_MIB = 2**20
# Field of nvidia-smi, name, help, and the factor that converts its unit.
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


def gpu_figures(output: str) -> list[Metric]:
    """Return the metrics of each GPU. Missing values (`[N/A]`) and lines that are not rows are left out.

    Raise ValueError if no line is a row.
    """
    lines = [[cell.strip() for cell in row] for row in csv.reader(output.splitlines()) if row]
    rows = [row for row in lines if len(row) == len(_FIGURES) + 2 and row[0].isdecimal()]
    if lines and not rows:
        raise ValueError("nvidia-smi does not print the requested fields")
    count = Metric("tailrack_gpus", "GPUs that nvidia-smi shows.", [({}, len(rows))])
    return [
        count,
        *(
            Metric(name, text, _samples(rows, column, factor))
            for column, (_, name, text, factor) in enumerate(_FIGURES, start=2)
        ),
    ]


def _samples(rows: Sequence[Sequence[str]], column: int, factor: float) -> list[Sample]:
    samples: list[Sample] = []
    for row in rows:
        try:
            samples.append(({"gpu": row[0], "kind": row[1]}, float(row[column]) * factor))
        except ValueError:
            continue
    return samples
