"""Create the link from which task-prolog reads MLflow's address.

The head node writes and removes the file behind the link, so no node waits for MLflow.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.mlflow.paths import PUBLISHED, URI_FILE


@dataclass(frozen=True)
class AddressValues:
    """Whether the cluster has MLflow, and the mount point of the share."""

    mlflow_enabled: bool
    nfs_exports_mount: str


def compute(step: Step, values: AddressValues) -> None:
    """Create or remove the link."""
    if values.mlflow_enabled:
        files.link(URI_FILE, f"{values.nfs_exports_mount}/{PUBLISHED}")
    else:
        files.remove(URI_FILE)
