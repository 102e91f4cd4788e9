"""Rule: with a removed or lowered floor, a slower network passes without notice.

The measurements' components have the config's floors as inputs, so that the state contains them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cli.run_events import Event
from stacks.config.allow import FLOOR_LOWERED, FLOOR_REMOVED

UNITS = {
    "tailrack:validation:NcclValidation": " GB/s",
    "tailrack:validation:TrainingBenchmark": " images a second",
    # The scope names the figure, which has the unit.
    "tailrack:validation:StorageMeasurement": "",
}


def floors(event: Event) -> Iterator[tuple[str, str]]:
    """Find floors of the last run that are lower now, or removed while their scope remains."""
    unit = UNITS.get(event.type)
    if unit is None or not event.after:
        return
    scopes = event.after["scopes"]
    # Higher limits, such as a latency's, are as weak as lower floors.
    for kind, word, falls in (("floors", "floor", "falls"), ("limits", "limit", "rises")):
        before, after = event.before.get(kind, {}), event.after.get(kind, {})
        for scope, value in sorted(before.items()):
            if scope not in after and scope in scopes:
                yield FLOOR_REMOVED, f"{scope} loses its {word} of {value:g}{unit}: any result would pass"
            elif scope in after and (after[scope] < value if kind == "floors" else after[scope] > value):
                yield FLOOR_LOWERED, f"the {word} of {scope} {falls} from {value:g} to {after[scope]:g}{unit}"
