"""Jobs on pods: the head node brings a job's folder there and its results back, and refuses jobs that could not work.

Pods do not have the share. Everything on the head node is installed when the first pod registers.

Not NFS in user space: it works through tailscaled's proxy only if the server accepts ports above 1024, and then every
program of every node speaks NFS as any uid. Pods have no FUSE device, and a pod that fetches would need a key to the
share. Slurm's burst buffers need directives that `srun` does not have. slurmctld waits 120 s for the programs that
copy.
"""

from components.node.systemd import UNITS as UNITS_FOLDER
from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.cluster_settings import ClusterSettings
from components.roles.pods.pod.library import library_path
from components.roles.pods.pod_staging.record import CUT_OFF, LINK, PROGRAM, RECORDS, REQUEST, UNITS
from components.roles.program import command_line, launcher
from components.roles.role import File, Role, render, template
from components.roles.slurm.slurm.folders import POD_JOBS, STAGE_IN, STAGE_OUT


def role(settings: ClusterSettings) -> Role:
    """Return the role. Its phases are those of pods alone."""
    on_head = (
        File(POD_JOBS, pod_jobs(settings)),
        File(STAGE_IN, _asking("in", '"${SLURM_JOB_COMMENT:-}" = stage'), mode="0755"),
        File(STAGE_OUT, _asking("out", f'-e "{RECORDS}/${{SLURM_JOB_ID:-none}}"'), mode="0755"),
        File(PROGRAM, launcher("pod-staging"), mode="0755"),
        File(LINK, launcher("pod-link"), mode="0755"),
        *(File(f"{UNITS_FOLDER}/{unit}", template("pod_staging", unit)) for unit in UNITS),
    )
    return Role(
        "pod_staging",
        after=("ssh_trust", "share"),
        packages={"pod_register": ("rsync",), "pod": ("rsync",)},
        files={
            "pod_register": on_head,
            "pod": (
                File(f"{ANSWERS}/{REQUEST}", launcher("pod-files"), mode="0755"),
                File(CUT_OFF, launcher("pod-cut-off", library_path(template("pod", "tailnet.c"))), mode="0755"),
            ),
        },
    )


def pod_jobs(settings: ClusterSettings) -> str:
    """Return the part of the submit script that checks jobs for pods."""
    return render("roles/pods/pod_staging/templates/pod-jobs.lua.j2", share=settings.storage.mount)


def _asking(direction: str, condition: str) -> str:
    """Return a program that slurmctld runs for every job before it starts, or after it has ended."""
    asking = f'exec {command_line("pod-staging-ask")} {direction} "$SLURM_JOB_ID"'
    return f"#!/bin/sh\n# Written by tailrack.\n[ {condition} ] || exit 0\n{asking}"
