"""What a node has that could carry NCCL's data, found as a plain user; a job runs this once on each node.

Prints one line, `# tailrack there NODE JSON`: `rdma` are the ports that the kernel knows, `gpus` and `nics` Slurm's own
GPUs' ways to one another and to those ports, in the words of `nvidia-smi topo -m` (NV18, PIX, PXB, PHB, NODE, SYS),
`meshed` whether more than half of the pairs of GPUs have NVLink, `p2p` whether the driver lets each pair of them read
the other, `peermem` whether nvidia_peermem is loaded, `dmabuf` whether the driver is NVIDIA's open one, which lends its
memory by DMA-BUF. What cannot be found out is null. fabric_facts.py reads it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60
RDMA = Path("/sys/class/infiniband")
HEALTH = Path("/run/tailrack/health.json")
PEERMEM = (Path("/sys/module/nvidia_peermem"), Path("/sys/kernel/mm/memory_peers/nv_mem"))
# Of topo -m, and of topo -p2p (OK, CNS, GNS, TNS, NS, DR, U).
WAY = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|OK|[CGT]?NS|DR|U", re.ASCII)
DRIVER = Path("/proc/driver/nvidia/version")


def told(path: Path) -> str:
    """A line of sysfs; empty where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def management_ports(health: Path = HEALTH) -> set[str]:
    """RDMA devices that manage a baseboard's NVLink switches, as root's collector has found them."""
    try:
        about = health.stat()
        looks = json.loads(health.read_text(encoding="utf-8"))["looks"] if about.st_uid == 0 else {}
        return set(str(looks["management ports"]["output"]).split())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def rdma_ports(folder: Path = RDMA, health: Path = HEALTH) -> list[dict[str, Any]]:
    """Every port of an RDMA device for data: its device, number, driver, link layer, and whether it is up."""
    found = []
    managing = management_ports(health)
    for port in sorted(folder.glob("*/ports/*")):
        device = port.parent.parent
        if device.name in managing:
            continue
        driver = device / "device" / "driver"
        found.append(
            {
                "device": device.name,
                "port": int(port.name),
                "driver": driver.resolve().name if driver.exists() else "",
                "link": told(port / "link_layer"),
                "up": told(port / "state").endswith("ACTIVE"),
            }
        )
    return found


def smi(*words: str) -> str | None:
    """What nvidia-smi prints, whatever its status: that may be a mere warning's. None where it gives no answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def matrix(text: str | None) -> dict[str, dict[str, str]] | None:
    """A table of nvidia-smi's topo: {row: {column: word}}; None where there is none."""
    if text is None:
        return None
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        words = [word.strip() for word in line.split("\t")]
        if not columns and "GPU0" in words:
            columns = words[1:]
        elif columns and len(words) > 1 and re.fullmatch(r"(GPU|NIC)\d+", words[0]):
            rows[words[0]] = dict(zip(columns, words[1:], strict=False))
    return rows or None


def ways(table: dict[str, dict[str, str]] | None, to: str) -> list[str] | None:
    """Each word between a GPU and another column of that kind, once; None where nvidia-smi does not say.

    What is no word of a way (`ERR!`, an empty cell) says nothing, and takes no other word with it.
    """
    return None if table is None else sorted({*_pairs(table, to).values()})


def _pairs(table: dict[str, dict[str, str]], to: str) -> dict[tuple[str, str], str]:
    return {
        (row, column): word
        for row, cells in table.items()
        for column, word in cells.items()
        if row.startswith("GPU") and re.fullmatch(to + r"\d+", column) and row != column and WAY.fullmatch(word)
    }


def meshed(table: dict[str, dict[str, str]] | None) -> bool | None:
    """Whether more than half of the pairs of GPUs have NVLink between them; None where nvidia-smi does not say.

    So it is behind switches and in a cube of eight, also where one of them has lost its links, and not where bridges
    join GPUs by two.
    """
    pairs = _pairs(table or {}, "GPU")
    return sum(word.startswith("NV") for word in pairs.values()) * 2 > len(pairs) if pairs else None


def main() -> None:
    """Look, and print the line."""
    topology = matrix(smi("topo", "-m"))
    peers = ways(matrix(smi("topo", "-p2p", "r")), "GPU")
    there = {
        "rdma": rdma_ports(),
        "gpus": ways(topology, "GPU"),
        "nics": ways(topology, "NIC"),
        "meshed": meshed(topology),
        "p2p": None if not peers else peers == ["OK"],
        "peermem": any(path.exists() for path in PEERMEM),
        "dmabuf": "Open Kernel Module" in told(DRIVER),
    }
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    sys.stdout.write("# tailrack there " + name + " " + json.dumps(there) + "\n")


if __name__ == "__main__":
    main()
