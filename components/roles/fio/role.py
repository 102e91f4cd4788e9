"""The package fio on nodes that run jobs, for the storage measurement (components/cluster/job_measurement.py)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role if the config measures storage. Without the package, a node runs jobs but is not measured."""
    return Role("fio", after=("slurm",), wanted={"compute": ("fio",)}) if settings.validation.storage else None
