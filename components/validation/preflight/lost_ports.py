"""Ports of InfiniBand and RoCE adapters that were up before and are not now, and links that keep going down.

What a node's ports were is kept by who looks (node_look.py): a port that nobody ever cabled is nothing that was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from components.validation.preflight.adapters import PORT, Port
from components.validation.preflight.findings import Finding, finding

WINDOW_SECONDS = 3 * 3600
MOST_DOWNS = 3
FORGET = "where it is not meant to be used any more: 'tailrack-checks --forget-ports' on the node"


@dataclass(frozen=True)
class Before:
    """Gb/s of each port that was ACTIVE at some time; and of the last hours (time, link_downed) of each port."""

    rates: Mapping[str, float] = field(default_factory=dict)
    downs: Mapping[str, Sequence[tuple[float, int]]] = field(default_factory=dict)


def after(before: Before, ports: Sequence[Port], now: float) -> Before:
    """What is kept after a look: the best rate of each port, and a sample of its counter every ten minutes at most."""
    rates, downs = dict(before.rates), {}
    for port in ports:
        if port.active:
            rates[str(port)] = max(port.rate or 0.0, rates.get(str(port), 0.0))
        samples = [each for each in before.downs.get(str(port), ()) if now - each[0] <= WINDOW_SECONDS]
        count = port.counters.get("link_downed")
        if count is not None and (not samples or now - samples[-1][0] >= 600 or count != samples[-1][1]):
            samples.append((now, count))
        downs[str(port)] = samples[-40:]
    return Before(rates, downs)


def check_lost(ports: Sequence[Port], before: Before, now: float) -> Iterator[Finding]:
    """Ports that were up, slower ones, and those whose link went down again and again within three hours."""
    by_name = {str(port): port for port in ports}
    for name, rate in sorted(before.rates.items()):
        port = by_name.get(name)
        if port is None or not port.active:
            state = f"is {port.state or 'in no known state'} ({port.physical or 'no link'})" if port else "is not there"
            yield finding(
                "error", PORT, f"{name} was ACTIVE and {state}",
                f"look at its cable, transceiver and the switch's port ('ibstat' on the node); {FORGET}",
            )  # fmt: skip
        elif port.rate is not None and port.rate < rate:
            yield finding(
                "error", PORT, f"{name} ran at {rate:g} Gb/s and runs at {port.rate:g} Gb/s",
                f"reseat or replace its cable and transceiver; {FORGET}",
            )  # fmt: skip
    for name, samples in sorted(before.downs.items()):
        port = by_name.get(name)
        count = port.counters.get("link_downed") if port else None
        recent = [each[1] for each in samples if now - each[0] <= WINDOW_SECONDS]
        # A counter that starts again has been set to 0 by somebody, or by a restart.
        if count is not None and recent and count - min(recent) > MOST_DOWNS and count >= max(recent):
            yield finding(
                "error", PORT, f"{name}: its link went down {count - min(recent)} times in three hours",
                "clean or replace cable and transceiver; see the switch's log of that port",
            )  # fmt: skip
