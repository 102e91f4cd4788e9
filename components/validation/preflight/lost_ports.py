"""InfiniBand and RoCE ports that were up before and are not now, and links that keep going down.

node_checks.py stores earlier states, because a port that never had a cable is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from components.node.waiting import within
from components.validation.preflight.adapters import PORT, Port
from components.validation.preflight.findings import Finding, finding

WINDOW_SECONDS = 3 * 3600
MOST_DOWNS = 3
FORGET = "if the port is unused on purpose, run 'tailrack-checks --forget-ports' on the node"


@dataclass(frozen=True)
class PortHistory:
    """Gb/s of each port that was ever ACTIVE, and (time, link_downed) of each port over the last hours."""

    rates: Mapping[str, float] = field(default_factory=dict)
    downs: Mapping[str, Sequence[tuple[float, int]]] = field(default_factory=dict)


def updated(history: PortHistory, ports: Sequence[Port], now: float) -> PortHistory:
    """Return the state to store: each port's best rate, and its counter at most every ten minutes."""
    rates, downs = dict(history.rates), {}
    for port in ports:
        if port.active:
            rates[str(port)] = max(port.rate or 0.0, rates.get(str(port), 0.0))
        samples = [sample for sample in history.downs.get(str(port), ()) if within(WINDOW_SECONDS, sample[0], now)]
        count = port.counters.get("link_downed")
        if count is not None and (not samples or not within(600, samples[-1][0], now) or count != samples[-1][1]):
            samples.append((now, count))
        downs[str(port)] = samples[-40:]
    return PortHistory(rates, downs)


def check_lost(ports: Sequence[Port], history: PortHistory, now: float) -> Iterator[Finding]:
    """Check for lost ports, slower ports, and links that went down often within three hours."""
    by_name = {str(port): port for port in ports}
    for name, rate in sorted(history.rates.items()):
        port = by_name.get(name)
        if port is None or not port.active:
            state = f"is {port.state or 'in an unknown state'} ({port.physical or 'no link'})" if port else "is gone"
            yield finding(
                "error", PORT, f"{name} was ACTIVE and now {state}",
                f"check its cable, transceiver and the switch port ('ibstat' on the node); {FORGET}",
            )  # fmt: skip
        elif port.rate is not None and port.rate < rate:
            yield finding(
                "error", PORT, f"{name} ran at {rate:g} Gb/s and now runs at {port.rate:g} Gb/s",
                f"reseat or replace its cable and transceiver; {FORGET}",
            )  # fmt: skip
    for name, samples in sorted(history.downs.items()):
        port = by_name.get(name)
        count = port.counters.get("link_downed") if port else None
        recent = [sample[1] for sample in samples if within(WINDOW_SECONDS, sample[0], now)]
        # A lower counter than before was reset by a person or by a restart.
        if count is not None and recent and count - min(recent) > MOST_DOWNS and count >= max(recent):
            yield finding(
                "error", PORT, f"{name}: its link went down {count - min(recent)} times in three hours",
                "clean or replace cable and transceiver; see the switch's log for that port",
            )  # fmt: skip
