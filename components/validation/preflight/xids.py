"""Xid and SXid events of this boot in the kernel's log: what a GPU, an NVSwitch or their driver complained of.

What a code means: NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors), and the two public lists that clouds drain
nodes by; where these disagree (63, 92, 94) it is a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.health import Look
from components.validation.preflight.smi import bus_address

XID, SXID = "Xid", "SXid"
MOST = 20
_EVENT = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?\): (\d{1,4})\b,?(.*)",
    re.ASCII,
)
# A GPU that is lost before its driver has it, or while nobody asks it, may come without a number.
_LOST, LOST_CODE = (
    re.compile(r"\bGPU (?:at )?(?:PCI:)?(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\b", re.ASCII),
    79,
)
# `12028, Non-fatal, Link 32 egress ...`; lines that go on with an event name no severity.
_SWITCH_EVENT = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \((?:PCI:)?([0-9A-Fa-f:.]{7,18})\): (\d{4,6}), (Non-fatal|Fatal)\b,?(.*)",
    re.ASCII | re.IGNORECASE,
)

_REPLACE = "restart the node; where it comes again, have the GPU, its cables and its slot looked at"
_RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset -i {bus}), or restart it"
_PROGRAM = "most often a fault of the program that ran; where different programs meet it, restart the node"
_WATCH_SWITCH = "watch it: such an event is recovered from by itself; see nvidia-fabricmanager's log where it goes on"
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


# In Xid 154 the driver says what it asks for from now on: its number and, differently by release, its name.
RECOVERY = 154
_ACTION = re.compile(r"recovery action changed from .* to 0x([0-9A-Fa-f]{1,8}) \(([^)]*)\)", re.ASCII)
_RESTART = "drain the node and restart it"


@dataclass
class Events:
    """What one log says of a GPU since its driver last asked for nothing.

    counted    how often each code came, and the words of the first
    action     the last Xid 154's own words; empty where there was none since
    lost       whether the driver said, outside an Xid event, that the GPU has fallen off the bus
    recovered  how often the driver took back what it had asked for
    """

    counted: Counter[int] = field(default_factory=Counter)
    words: dict[int, str] = field(default_factory=dict)
    action: str = ""
    lost: bool = False
    recovered: int = 0


def check_log(look: Look | None, gpus: int) -> Iterator[Finding]:
    """Whether the kernel's log was read at all: without it no event is seen."""
    if gpus and look is not None and look.status != 0 and not look.output.strip():
        yield unjudged(XID, f"the kernel's log cannot be read (status {look.status})", "run 'journalctl -k -b' as root")


def check_switches(*texts: str) -> Iterator[Finding]:
    """One finding an NVSwitch and code, of texts that may have the same events."""
    found: dict[tuple[str, str], tuple[bool, str]] = {}
    for line in "\n".join(texts).splitlines():
        if event := _SWITCH_EVENT.search(line):
            fatal = event[3].lower() == "fatal"
            before = found.get((event[1], event[2]))
            if before is None or (fatal and not before[0]):
                found[event[1], event[2]] = (fatal, event[4].strip()[:160])
    for (bus, code), (fatal, words) in sorted(found.items(), key=lambda each: (not each[1][0], each[0]))[:MOST]:
        yield finding(
            "error" if fatal else "warning", SXID, f"NVSwitch {bus}: SXid {code}, {'fatal' if fatal else 'non-fatal'}: "
            f"{words}",
            "drain the node and restart it; where it comes again, have the switch, its GPUs and baseboard looked at"
            if fatal else _WATCH_SWITCH,
        )  # fmt: skip


def read_xids(text: str) -> dict[str, Events]:
    """Return the events of each GPU by its bus address. A GPU that was reset has those since then alone."""
    found: dict[str, Events] = {}
    for line in text.splitlines():
        event = _EVENT.search(line)
        if event is None:
            # Plain searches first: one pattern for all of it would be quadratic on hostile text.
            if "NVRM: " in line and "fallen off the bus" in line and (gone := _LOST.search(line)):
                found.setdefault(bus_address(f"{gone[1]}.0"), Events()).lost = True
            continue
        bus, code, words = bus_address(f"{event[1]}.0"), int(event[2]), event[3].strip()[:160]
        of = found.setdefault(bus, Events())
        if code == RECOVERY and (action := _ACTION.search(words)):
            if int(action[1], 16) == 0:
                found[bus] = Events(recovered=of.recovered + 1)
            else:
                of.action = words
        else:
            of.counted[code] += 1
            of.words.setdefault(code, words)
    for of in found.values():
        if of.lost and LOST_CODE not in of.counted:
            of.counted[LOST_CODE] = 1
            of.words[LOST_CODE] = "GPU has fallen off the bus"
    return found


def check_xids(*texts: str) -> Iterator[Finding]:
    """One finding a GPU and code, of texts that may have the same events."""
    logs = [read_xids(text) for text in texts]
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for bus in {bus for log in logs for bus in log}:
        of = [log[bus] for log in logs if bus in log]
        # One that was written before the others, or has lost its beginning, knows of fewer resets.
        of = [each for each in of if each.recovered == max(other.recovered for other in of)]
        for each in of:
            for code, count in each.counted.items():
                first, most = found.get((bus, code), (each.words[code], 0))
                found[bus, code] = (first, max(most, count))
        if action := next((each.action for each in reversed(of) if each.action), ""):
            found[bus, RECOVERY] = (action, 1)
    for (bus, code), (words, count) in sorted(found.items())[:MOST]:
        severity, remedy = _advice(code, words)
        times = f" ({count} times)" if count > 1 else ""
        yield finding(severity, XID, f"GPU {bus}: Xid {code}{times}: {words}", remedy.format(bus=bus))
    if len(found) > MOST:
        yield finding(
            "error", XID, f"{len(found) - MOST} more kinds of events", "see 'dmesg | grep -i xid' on the node"
        )


def _advice(code: int, words: str) -> tuple[str, str]:
    """Return how bad an event is and what helps."""
    if code == RECOVERY and (action := _ACTION.search(words)):
        name = action[2].lower()
        if "reboot" in name:
            return "error", _RESTART
        if "reset" in name or "flr" in name:
            return "error", _RESET
    return _NEXT.get(code, ("warning", _WATCH))
