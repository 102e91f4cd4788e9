"""The features `data-NAME` of this node in Slurm, so that jobs can ask for data sets."""

from __future__ import annotations

from collections.abc import Collection

from components.node import files
from components.roles.datasets.paths import FEATURES
from components.roles.slurm.live_features import set_live_features

PREFIX, ROLE = "data-", "datasets"
# slurmctld may have forgotten them, for example after it restored an old state.
_AGAIN_SECONDS = 120


def set_features(node: str, names: Collection[str]) -> None:
    """Give the node the features of these data sets, and take those that were given before."""
    wanted = sorted(f"{PREFIX}{name}" for name in names)
    given, age = [line for line in files.lines(FEATURES) if line], files.age_of(FEATURES)
    if wanted == given and (not given or (age is not None and age < _AGAIN_SECONDS)):
        return
    if set_live_features(node, ROLE, wanted):
        # Writing the same text would not change the file's time.
        files.remove(FEATURES)
        if wanted:
            files.write(FEATURES, "\n".join(wanted))
