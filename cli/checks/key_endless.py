"""A reusable auth key without an end: whoever finds it years later could still join the tailnet."""

from __future__ import annotations

from collections.abc import Iterator

from engine.events import Event
from stacks.config.allow import KEY_ENDLESS

KEY = "tailscale:index/tailnetKey:TailnetKey"
LONGEST_SECONDS = 90 * 24 * 3600  # the longest that Tailscale gives a key


def key_endless(event: Event) -> Iterator[tuple[str, str]]:
    """Find a reusable key whose end nobody wrote down, or that has none."""
    if event.type != KEY or event.after.get("reusable") is not True:
        return
    ends = event.after.get("expiry")
    if not isinstance(ends, int | float) or not 0 < ends <= LONGEST_SECONDS:
        yield KEY_ENDLESS, f"{event.name} is a reusable auth key without an end of 90 days or fewer"
