"""The GPUs that Slurm gives to jobs of this node, from its lines of gres.conf (/etc/tailrack/gres.conf)."""

from __future__ import annotations

import re
from pathlib import Path

GRES = Path("etc/tailrack/gres.conf")
MOST = 256


def device_numbers(root: Path = Path("/")) -> list[int]:
    """Return the numbers of their device files in Slurm's order; empty without GPUs."""
    try:
        text = (root / GRES).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return device_numbers_in(text)


def device_numbers_in(text: str) -> list[int]:
    """Return the numbers of the device files that lines of gres.conf name, in Slurm's order."""
    devices: list[int] = []
    for numbers in re.findall(r"^[^#\n]*\bName=gpu\b[^\n]*\bFile=/dev/nvidia\[?([0-9,-]+)\]?", text, re.MULTILINE):
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                devices += range(int(first), min(int(last or first), MOST) + 1)
    return sorted(set(devices))
