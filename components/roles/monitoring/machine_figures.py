"""Metrics of this machine's GPUs, from nvidia-smi, and tailnet connections, from `tailscale status --json`. Pure."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence

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


def read_names(text: str) -> dict[str, str]:
    """Return member names by address, from lines `address name`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def tailnet_figures(status: str, names: Mapping[str, str]) -> list[Metric]:
    """Return the metrics of each member that this machine recently exchanged data with.

    names   of members by address; the name that a machine gives itself in the tailnet is ignored

    Raise ValueError for output in another format.
    """
    direct: list[Sample] = []
    received: list[Sample] = []
    sent: list[Sample] = []
    try:
        for peer in (json.loads(status).get("Peer") or {}).values():
            # Skip a peer without data.
            if not peer:
                continue
            name = next((names[address] for address in peer.get("TailscaleIPs") or [] if address in names), "")
            if not name:
                continue
            labels = {"peer": name}
            received.append((labels, int(peer.get("RxBytes") or 0)))
            sent.append((labels, int(peer.get("TxBytes") or 0)))
            # Without traffic there is no path, direct or relayed.
            if peer.get("Active"):
                direct.append((labels, int(bool(peer.get("CurAddr")))))
    except (AttributeError, TypeError) as error:
        raise ValueError("tailscale does not print its status as expected") from error
    return [
        Metric("tailrack_tailnet_direct", "1 if data to a peer goes directly, 0 if by a relay.", direct),
        Metric("tailrack_tailnet_received_bytes_total", "Bytes from a peer over the tailnet.", received, "counter"),
        Metric("tailrack_tailnet_sent_bytes_total", "Bytes to a peer over the tailnet.", sent, "counter"),
    ]
