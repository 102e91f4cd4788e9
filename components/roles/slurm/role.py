"""Slurm: the controller on the head node, slurmd where jobs run; configless and dynamic (docs/decisions/0003)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

# With it comes the library of PMIx, under a name that is the same in every release. `srun --mpi=pmix` needs it on the
# machine it is called on too, and users log in on the head node.
MPI = "openmpi-bin"
# What the CPU measurement needs on every node that runs jobs.
MEASUREMENT = (MPI, "python3-mpi4py", "python3-numpy")
# slurmctld, slurmd, slurmdbd; srun (SrunPortRange)
PORTS = ("6817-6819", "60001-60999")
# A program beside slurmd, and its unit.
KNOWN = "tailrack-known"
# What gives a node's jobs back when its machine shuts down; the unit is compute.sh's.
SHUTDOWN = "tailrack-shutdown"
# A program beside slurmctld, whose text comes with the head node's step, and its timer.
FORGET = "tailrack-forget"


def role(settings: ClusterSettings) -> Role:
    """slurm.conf and its kin are made by files.py, from what all roles say, once the head node's address is known."""
    controller = File(
        "/etc/systemd/system/slurmctld.service.d/tailrack.conf", template("slurm", "slurmctld.service.conf")
    )
    known = (
        File(f"/usr/local/sbin/{KNOWN}", template("slurm", KNOWN), mode="0755"),
        File(f"/usr/local/sbin/{SHUTDOWN}", template("slurm", SHUTDOWN), mode="0755"),
        File(f"/etc/systemd/system/{KNOWN}.service", template("slurm", f"{KNOWN}.service")),
    )
    forget = (
        File(f"/etc/systemd/system/{FORGET}.service", template("slurm", f"{FORGET}.service")),
        File(f"/etc/systemd/system/{FORGET}.timer", template("slurm", f"{FORGET}.timer")),
    )
    return Role(
        "slurm",
        after=("firewall", "munge", "names", "nfs_exports", "gpu", "enroot_pyxis"),
        section=settings.slurm,
        ports=PORTS,
        serves=PORTS,
        packages={"head": ("slurmctld", "slurm-client", MPI), "compute": ("slurmd", "slurm-client", *MEASUREMENT)},
        files={"head": (controller, *forget), "compute": known},
    )
