"""A floor taken away or lowered: a slower network would pass, and nobody would be told.

The component of the measurement has the config's floors among its inputs, so that the state remembers them.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.events import Event
from stacks.config.allow import FLOOR_LOWERED, FLOOR_REMOVED

VALIDATION = "tailrack:validation:NcclValidation"


def floors(event: Event) -> Iterator[tuple[str, str]]:
    """Find the floors of the last run that are lower now, or gone while their scope is still there."""
    if event.type != VALIDATION or not event.after:
        return
    there, now = event.after["scopes"], event.after["floors"]
    for scope, floor in sorted(event.before.get("floors", {}).items()):
        if scope not in now and scope in there:
            yield FLOOR_REMOVED, f"{scope} loses its floor of {floor:g} GB/s: no figure would be too low"
        elif scope in now and now[scope] < floor:
            yield FLOOR_LOWERED, f"{scope} would pass with {now[scope]:g} GB/s, and {floor:g} GB/s is its floor"
