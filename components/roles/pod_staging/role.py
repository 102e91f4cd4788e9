"""Jobs on pods: the head node brings a job's folder there and its results back, and refuses jobs that could not work.

Pods do not have the share. Everything on the head node is installed when the first pod registers.
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.render import render
from components.roles.role import File, Role
from components.roles.slurm.fragment import POD_JOBS


def role(settings: ClusterSettings) -> Role:
    """Return the role. Its phases are those of pods alone."""
    return Role(
        "pod_staging",
        after=("ssh_trust", "nfs_exports"),
        files={"pod_register": (File(POD_JOBS, pod_jobs(settings)),)},
    )


def pod_jobs(settings: ClusterSettings) -> str:
    """Return the part of the submit script that checks jobs for pods."""
    return render("roles/pod_staging/templates/pod-jobs.lua.j2", share=settings.storage.mount)
