"""Check that the controller's release supports dynamic nodes."""

from __future__ import annotations

from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.slurm.releases import ADVISED, NEEDED, is_older, one_release_remedy, release_of


def check_head(step: Step) -> None:
    """Check the version that check.py has reported."""
    release = release_of(step.results.get("slurm_version", ""))
    if release and is_older(release, NEEDED):
        raise Failure(
            f"Slurm {release} is too old: dynamic nodes need {NEEDED} or newer",
            f"use a newer image for {step.host} (Debian 13, Ubuntu 24.04), or {one_release_remedy(ADVISED)}",
        )
