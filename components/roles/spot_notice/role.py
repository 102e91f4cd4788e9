"""Spot notices: a node whose provider takes its machine back drains itself, and its jobs save and go elsewhere."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher, version
from components.roles.role import Role, template
from components.roles.spot_notice.host import UNIT


def role(_settings: ClusterSettings) -> Role:
    """Return the role. The key `spot` of a machine's site decides which machines have the service."""
    return Role(
        "spot_notice",
        after=("slurm",),
        texts={
            "program": launcher("spot-notice"),
            "version": version("spot-notice"),
            "unit": template("spot_notice", UNIT),
        },
    )
