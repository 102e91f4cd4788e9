"""Rule: with a removed or lowered floor, a slower network passes without notice.

The measurements' components have the config's floors as inputs, so that the state contains them.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.events import Event
from stacks.config.allow import FLOOR_LOWERED, FLOOR_REMOVED

UNITS = {
    "tailrack:validation:NcclValidation": "GB/s",
    "tailrack:validation:TrainingBenchmark": "images a second",
}


def floors(event: Event) -> Iterator[tuple[str, str]]:
    """Find floors of the last run that are lower now, or removed while their scope remains."""
    unit = UNITS.get(event.type)
    if unit is None or not event.after:
        return
    scopes, new_floors = event.after["scopes"], event.after["floors"]
    for scope, floor in sorted(event.before.get("floors", {}).items()):
        if scope not in new_floors and scope in scopes:
            yield FLOOR_REMOVED, f"{scope} loses its floor of {floor:g} {unit}: any result would pass"
        elif scope in new_floors and new_floors[scope] < floor:
            yield FLOOR_LOWERED, f"the floor of {scope} falls from {floor:g} to {new_floors[scope]:g} {unit}"
