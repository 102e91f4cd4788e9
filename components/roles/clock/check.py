"""Check that the clock is near enough for joining, which needs certificates, packages and a time service.

The reference is the tailnet's control server, which every machine reaches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from components.node.log import note
from components.node.step.step import Step
from components.roles.clock.compare import http_time, require_clock
from components.roles.tailnet.tailscale import OWN_SERVER

# Seconds. munge still works between two machines that differ by this much in opposite directions.
LIMIT = 120


@dataclass(frozen=True)
class ControlValues:
    """The tailnet's control server; empty for Tailscale's."""

    tailnet_control_url: str


def check(step: Step, values: ControlValues) -> None:
    """Compare the clock with the control server's."""
    place = _place(values.tailnet_control_url or OWN_SERVER)
    control_time = http_time(*place) if place else None
    if control_time is None:
        note(
            "the control server sends no time without encryption; nodes compare clocks with the head node as they join"
        )
    else:
        require_clock(control_time, LIMIT, "that of the tailnet's control server", step.host)


def _place(url: str) -> tuple[str, int] | None:
    """Return where the server answers without encryption, because a wrong clock rejects certificates.

    Most servers answer there, if only with a redirect. Another port of an encrypted server is encrypted too.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or not re.fullmatch(r"[A-Za-z0-9.-]+", parts.hostname):
        return None
    return parts.hostname, port or 80 if parts.scheme == "http" else 80
