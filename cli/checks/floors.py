"""A floor taken away or lowered: a slower network would pass, and nobody would be told.

The components of the measurements have the config's floors among their inputs, so that the state remembers them.
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
    """Find the floors of the last run that are lower now, or gone while their scope is still there."""
    unit = UNITS.get(event.type)
    if unit is None or not event.after:
        return
    there, now = event.after["scopes"], event.after["floors"]
    for scope, floor in sorted(event.before.get("floors", {}).items()):
        if scope not in now and scope in there:
            yield FLOOR_REMOVED, f"{scope} loses its floor of {floor:g} {unit}: no figure would be too low"
        elif scope in now and now[scope] < floor:
            yield FLOOR_LOWERED, f"{scope} would pass with {now[scope]:g} {unit}, and {floor:g} {unit} is its floor"
