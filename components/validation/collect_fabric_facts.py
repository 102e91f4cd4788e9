"""Print the hardware of a node that can carry NCCL's data; a job runs this once per node as a plain user.

Prints one line, `# tailrack there NODE JSON`, for fabric_facts.py:

rdma       RDMA ports in the kernel
gpus, nics   connections of Slurm's GPUs to each other and to those ports, as in `nvidia-smi topo -m` (NV18, PIX, PXB,
             PHB, NODE, SYS)
meshed     whether more than half of the pairs of GPUs have NVLink
p2p        whether the driver allows peer access between all GPUs
peermem    whether nvidia_peermem is loaded
dmabuf     whether the driver is NVIDIA's open one, which supports DMA-BUF

Unknown values are null.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60
RDMA = Path("/sys/class/infiniband")
HEALTH = Path("/run/tailrack/health.json")
PEERMEM = (Path("/sys/module/nvidia_peermem"), Path("/sys/kernel/mm/memory_peers/nv_mem"))
# Connections in topo -m and topo -p2p (OK, CNS, GNS, TNS, NS, DR, U).
WAY = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|OK|[CGT]?NS|DR|U", re.ASCII)
DRIVER = Path("/proc/driver/nvidia/version")


def sysfs_text(path: Path) -> str:
    """Return the text of a sysfs file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def management_ports(health: Path = HEALTH) -> set[str]:
    """Return the RDMA devices that manage a baseboard's NVLink switches, as root's collector found them."""
    try:
        status = health.stat()
        results = json.loads(health.read_text(encoding="utf-8"))["looks"] if status.st_uid == 0 else {}
        return set(str(results["management ports"]["output"]).split())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def rdma_ports(folder: Path = RDMA, health: Path = HEALTH) -> list[dict[str, Any]]:
    """Return every data port of RDMA devices."""
    ports = []
    excluded = management_ports(health)
    for port in sorted(folder.glob("*/ports/*")):
        device = port.parent.parent
        if device.name in excluded:
            continue
        driver = device / "device" / "driver"
        ports.append(
            {
                "device": device.name,
                "port": int(port.name),
                "driver": driver.resolve().name if driver.exists() else "",
                "link": sysfs_text(port / "link_layer"),
                "up": sysfs_text(port / "state").endswith("ACTIVE"),
            }
        )
    return ports


def smi(*options: str) -> str | None:
    """Return nvidia-smi's output, whatever its status, which may be a mere warning; None without an answer."""
    try:
        process = subprocess.run(
            ["nvidia-smi", *options],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


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
    topology = matrix(smi("topo", "-m"))
    peers = ways(matrix(smi("topo", "-p2p", "r")), "GPU")
    facts = {
        "rdma": rdma_ports(),
        "gpus": ways(topology, "GPU"),
        "nics": ways(topology, "NIC"),
        "meshed": meshed(topology),
        "p2p": None if not peers else peers == ["OK"],
        "peermem": any(path.exists() for path in PEERMEM),
        "dmabuf": "Open Kernel Module" in sysfs_text(DRIVER),
    }
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    sys.stdout.write("# tailrack there " + name + " " + json.dumps(facts) + "\n")
