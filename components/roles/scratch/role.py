"""Room of a job's own on its node's disk: made before it, named by TMPDIR, removed after it.

The scripts that Slurm runs are role health's (prolog-45-scratch, epilog-90-scratch); jobs are told by role fabric's
task-prolog. All three read /etc/tailrack/scratch, which this role writes.
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """On every node, so that it goes where the config names no folder any more."""
    return Role("scratch", after=("health",), values={"SCRATCH_FOLDER": settings.scratch.folder})
