"""Xid events of this boot in the kernel's log: what a GPU or its driver complained of.

What a code means: NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors), and the two public lists that clouds drain
nodes by; where these disagree (63, 92, 94) it is a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.smi import bus_address

XID = "Xid"
MOST = 20
_EVENT = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?\): (\d{1,4})\b,?(.*)", re.ASCII
)

_REPLACE = "restart the node; where it comes again, have the GPU, its cables and its slot looked at"
_RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset -i {bus}), or restart it"
_PROGRAM = "most often a fault of the program that ran; where different programs meet it, restart the node"
_WATCH = "watch it; reset the GPU between jobs where it comes again"

_NEXT = {
    **dict.fromkeys((54,), ("error", "look at the GPU's power cables")),
    **dict.fromkeys((79, 151, 168), ("error", _REPLACE)),
    **dict.fromkeys((48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), ("error", _RESET)),
    **dict.fromkeys((56, 57, 58, 61, 65, 68, 69, 73, 80, 81), ("error", _RESET)),
    **dict.fromkeys((144, 145, 146, 147, 148, 149, 150, 159), ("warning", _WATCH)),
    **dict.fromkeys((63, 92, 94, 121, 154), ("warning", _WATCH)),
    **dict.fromkeys((8, 13, 31, 32, 43, 45, 66, 126, 162, 163, 164, 165), ("warning", _PROGRAM)),
}


def read_xids(text: str) -> Counter[tuple[str, int, str]]:
    """Return how often each GPU reported each code: (bus address, code, the first event's own words)."""
    counted: Counter[tuple[str, int]] = Counter()
    words: dict[tuple[str, int], str] = {}
    for line in text.splitlines():
        if event := _EVENT.search(line):
            key = (bus_address(f"{event[1]}.0"), int(event[2]))
            counted[key] += 1
            words.setdefault(key, event[3].strip()[:160])
    return Counter({(*key, words[key]): count for key, count in counted.items()})


def check_xids(*texts: str) -> Iterator[Finding]:
    """One finding a GPU and code, of texts that may have the same events."""
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for text in texts:
        for (bus, code, words), count in read_xids(text).items():
            first, most = found.get((bus, code), (words, 0))
            found[bus, code] = (first, max(most, count))
    for (bus, code), (words, count) in sorted(found.items())[:MOST]:
        severity, remedy = _NEXT.get(code, ("warning", _WATCH))
        times = f" ({count} times)" if count > 1 else ""
        yield finding(severity, XID, f"GPU {bus}: Xid {code}{times}: {words}", remedy.format(bus=bus))
    if len(found) > MOST:
        yield finding(
            "error", XID, f"{len(found) - MOST} more kinds of events", "see 'dmesg | grep -i xid' on the node"
        )
