"""Xid and SXid events of this boot in the kernel's log: faults of a GPU, an NVSwitch or their driver.

Severities are from NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors) and the two public lists by which clouds
drain nodes; codes on which these disagree (63, 92, 94) are warnings.

The events are read from the kernel's ring buffer; the journal of a long boot takes seconds.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from components.validation.preflight.findings import CommandResult, Finding, finding, unjudged
from components.validation.preflight.gpu_health import bus_address

XID, SXID = "Xid", "SXid"
MOST = 20
_EVENT = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?\): (\d{1,4})\b,?(.*)",
    re.ASCII,
)
# A GPU that is lost before its driver has it, or while it is idle, may be reported without a code.
_LOST = re.compile(r"\bGPU (?:at )?(?:PCI:)?(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\b", re.ASCII)
LOST_CODE = 79
# For example `12028, Non-fatal, Link 32 egress ...`; continuation lines have no severity.
_SWITCH_EVENT = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \((?:PCI:)?([0-9A-Fa-f:.]{7,18})\): (\d{4,6}), (Non-fatal|Fatal)\b,?(.*)",
    re.ASCII | re.IGNORECASE,
)
_REPLACE = "restart the node; if it happens again, have the GPU, its cables and its slot checked"
_RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset -i {bus}), or restart it"
_PROGRAM = "usually a fault of the program; if different programs cause it, restart the node"
_WATCH_SWITCH = "watch it: the switch recovers from such an event; if it continues, see nvidia-fabricmanager's log"
_WATCH = "watch it; if it happens again, reset the GPU between jobs"
_NEXT = {
    **dict.fromkeys((54,), ("error", "check the GPU's power cables")),
    **dict.fromkeys((79, 151, 168), ("error", _REPLACE)),
    **dict.fromkeys((48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), ("error", _RESET)),
    **dict.fromkeys((56, 57, 58, 61, 65, 68, 69, 73, 80, 81), ("error", _RESET)),
    **dict.fromkeys((144, 145, 146, 147, 148, 149, 150, 159), ("warning", _WATCH)),
    **dict.fromkeys((63, 92, 94, 121, 154), ("warning", _WATCH)),
    **dict.fromkeys((8, 13, 31, 32, 43, 45, 66, 126, 162, 163, 164, 165), ("warning", _PROGRAM)),
}
# Xid 154 reports the action that the driver requests: its number, and a name that differs by release.
RECOVERY = 154
_ACTION = re.compile(r"recovery action changed from .* to 0x([0-9A-Fa-f]{1,8}) \(([^)]*)\)", re.ASCII)
_RESTART = "drain the node and restart it"
KMSG = Path("dev/kmsg")
MOST_BYTES = 16 * 2**20
WANTED = ("NVRM: ", "SXid (")
# `priority,number,microseconds,flags;text`
_RECORD = re.compile(r"[^,;]*,(\d{1,20}),[^,;]*,[^;]*;(.*)", re.ASCII)


@dataclass
class Events:
    """The events of one GPU in one log since its driver last requested no action.

    counted    number of events by code
    texts      text of the first event by code
    action     text of the last Xid 154
    lost       whether the driver reported outside an Xid event that the GPU fell off the bus
    recovered  how often the driver withdrew its request
    """

    counted: Counter[int] = field(default_factory=Counter)
    texts: dict[int, str] = field(default_factory=dict)
    action: str = ""
    lost: bool = False
    recovered: int = 0


def check_log(result: CommandResult | None, gpus: int) -> Iterator[Finding]:
    """Check that the kernel's log was read: without it no event is seen."""
    if gpus and result is not None and result.status != 0 and not result.output.strip():
        seen = f"the kernel's log cannot be read (status {result.status})"
        yield unjudged(XID, seen, "run 'journalctl -k -b' as root")


def check_switches(*texts: str) -> Iterator[Finding]:
    """Yield one finding per NVSwitch and code; the texts may contain the same events."""
    events: dict[tuple[str, str], tuple[bool, str]] = {}
    for line in "\n".join(texts).splitlines():
        if event := _SWITCH_EVENT.search(line):
            fatal = event[3].lower() == "fatal"
            earlier = events.get((event[1], event[2]))
            if earlier is None or (fatal and not earlier[0]):
                events[event[1], event[2]] = (fatal, event[4].strip()[:160])
    for (bus, code), (fatal, message) in sorted(
        events.items(), key=lambda event_item: (not event_item[1][0], event_item[0])
    )[:MOST]:
        yield finding(
            "error" if fatal else "warning", SXID, f"NVSwitch {bus}: SXid {code}, {'fatal' if fatal else 'non-fatal'}: "
            f"{message}",
            "drain the node and restart it; if it happens again, have the switch, its GPUs and baseboard checked"
            if fatal else _WATCH_SWITCH,
        )  # fmt: skip


def read_xids(text: str) -> dict[str, Events]:
    """Return the events of each GPU by its bus address. After a reset, a GPU has only the events since then."""
    gpus: dict[str, Events] = {}
    for line in text.splitlines():
        event = _EVENT.search(line)
        if event is None:
            # Plain searches first: a single pattern would take quadratic time on hostile text.
            if "NVRM: " in line and "fallen off the bus" in line and (gone := _LOST.search(line)):
                gpus.setdefault(bus_address(f"{gone[1]}.0"), Events()).lost = True
            continue
        bus, code, message = bus_address(f"{event[1]}.0"), int(event[2]), event[3].strip()[:160]
        events = gpus.setdefault(bus, Events())
        if code == RECOVERY and (action := _ACTION.search(message)):
            if int(action[1], 16) == 0:
                gpus[bus] = Events(recovered=events.recovered + 1)
            else:
                events.action = message
        else:
            events.counted[code] += 1
            events.texts.setdefault(code, message)
    for events in gpus.values():
        if events.lost and LOST_CODE not in events.counted:
            events.counted[LOST_CODE] = 1
            events.texts[LOST_CODE] = "GPU has fallen off the bus"
    return gpus


def check_xids(*texts: str) -> Iterator[Finding]:
    """Yield one finding per GPU and code; the texts may contain the same events."""
    logs = [read_xids(text) for text in texts]
    worst: dict[tuple[str, int], tuple[str, int]] = {}
    for bus in {bus for log in logs for bus in log}:
        events = [log[bus] for log in logs if bus in log]
        # An older log, or one without its beginning, contains fewer resets.
        events = [
            log_events for log_events in events if log_events.recovered == max(other.recovered for other in events)
        ]
        for log_events in events:
            for code, count in log_events.counted.items():
                first, most = worst.get((bus, code), (log_events.texts[code], 0))
                worst[bus, code] = (first, max(most, count))
        if action := next((log_events.action for log_events in reversed(events) if log_events.action), ""):
            worst[bus, RECOVERY] = (action, 1)
    for (bus, code), (message, count) in sorted(worst.items())[:MOST]:
        severity, remedy = _advice(code, message)
        times = f" ({count} times)" if count > 1 else ""
        yield finding(severity, XID, f"GPU {bus}: Xid {code}{times}: {message}", remedy.format(bus=bus))
    if len(worst) > MOST:
        seen = f"{len(worst) - MOST} more kinds of events"
        yield finding("error", XID, seen, "see 'dmesg | grep -i xid' on the node")


def _advice(code: int, message: str) -> tuple[str, str]:
    if code == RECOVERY and (action := _ACTION.search(message)):
        name = action[2].lower()
        if "reboot" in name:
            return "error", _RESTART
        if "reset" in name or "flr" in name:
            return "error", _RESET
    return _NEXT.get(code, ("warning", _WATCH))


def read_kmsg(root: Path = Path("/")) -> list[tuple[int, str]]:
    """Return (number, text) of records that may be GPU events; empty if the device cannot be read.

    Each read of the device returns one record.
    """
    try:
        device = os.open(root / KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    data = bytearray()
    try:
        while len(data) < MOST_BYTES:
            try:
                record = os.read(device, 8192)
            except BrokenPipeError:  # the record was overwritten during the read
                continue
            except OSError:  # no more records
                break
            if not record:
                break
            data += record
    finally:
        os.close(device)
    return _records(data.decode("utf-8", "replace"))


def _records(text: str) -> list[tuple[int, str]]:
    records = map(_RECORD.fullmatch, text.split("\n"))
    return [(int(record[1]), record[2]) for record in records if record and any(word in record[2] for word in WANTED)]


def joined(earlier: list[tuple[int, str]], now: list[tuple[int, str]], most: int = 500) -> list[tuple[int, str]]:
    """Return the earlier records of this boot and the new ones: the buffer drops its oldest records."""
    last = max((number for number, _ in earlier), default=-1)
    return [*earlier, *(record for record in now if record[0] > last)][:most]
