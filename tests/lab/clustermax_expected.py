"""The expected status of each check of ClusterMAX's audit, in the lab; docs/clustermax.md has the reasons."""

import json
from pathlib import Path

_DATA = json.loads(Path(__file__).parents[1].joinpath("fixtures", "clustermax.json").read_text(encoding="utf-8"))
EXPECTED: dict[str, list[str]] = _DATA["expected"]
# The kernel and the devices of the machine under the lab decide these: another result there is no error.
OF_THE_HOST: list[str] = _DATA["of the host"]


def expected() -> dict[str, str]:
    """Return the expected status of each check."""
    return {key: status for status, keys in EXPECTED.items() for key in keys}
