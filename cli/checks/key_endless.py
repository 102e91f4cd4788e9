"""Rule: with a reusable auth key that never expires, a person who finds it years later can join the tailnet."""

from __future__ import annotations

from collections.abc import Iterator

from cli.run_events import Event
from stacks.config.allow import KEY_ENDLESS

KEY = "tailscale:index/tailnetKey:TailnetKey"
LONGEST_SECONDS = 90 * 24 * 3600  # Tailscale's maximum for a key


def key_endless(event: Event) -> Iterator[tuple[str, str]]:
    """Find a reusable key without an expiry, or with an unknown one."""
    if event.type != KEY or event.after.get("reusable") is not True:
        return
    expiry = event.after.get("expiry")
    if not isinstance(expiry, int | float) or not 0 < expiry <= LONGEST_SECONDS:
        yield KEY_ENDLESS, f"{event.name} is a reusable auth key that does not expire within 90 days"
