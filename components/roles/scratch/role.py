"""A scratch folder for each job on its node's disk: created before the job, in TMPDIR, removed after it.

Role health has the scripts that Slurm runs (prolog-45-scratch, epilog-90-scratch); role fabric's task-prolog sets
TMPDIR. All three read /etc/tailrack/scratch, which this role writes.
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Return the role, for every node, so that nodes remove it when the config names no folder any more."""
    return Role("scratch", after=("health",), values={"SCRATCH_FOLDER": settings.scratch.folder})
