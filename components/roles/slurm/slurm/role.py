"""Slurm: the controller on the head node, slurmd where jobs run; configless and dynamic
(docs/decisions/0003-slurm-over-a-tailnet.md)."""

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import matching, truth, version
from components.roles.program import launcher
from components.roles.role import USERS, File, Holder, Role, SlurmKey, template, unit, unit_like
from components.roles.slurm.slurm.folders import FROM_CONTROLLER, LINK, LOST_JOBS, PUBLISHED
from components.roles.slurm.slurm.machine_keys import needs_cgroups
from components.roles.slurm.slurm.retry import PROGRAM as RETRY
from components.roles.slurm.slurm.slurm_conf import MAIL_PROGRAM

# It installs PMIx's library under a name that is the same in every release. `srun --mpi=pmix` needs it where it is
# called, which includes the head node.
MPI = "openmpi-bin"
# Packages of the CPU measurement, on every node that runs jobs.
MEASUREMENT = (MPI, "python3-mpi4py", "python3-numpy")
# slurmctld, slurmd, slurmdbd; srun (SrunPortRange)
PORTS = ("6817-6819", "60001-60999")
ACCOUNT = "slurm"
# Programs beside slurmd and slurmctld, and their units.
WATCHDOG = "tailrack-slurmd-watchdog"
CONTROLLER_WATCHDOG = "tailrack-slurmctld-watchdog"
ROOM = "tailrack-slurm-room"
# The program that requeues a node's jobs when its machine shuts down; slurmd.py writes the unit.
SHUTDOWN = "tailrack-shutdown"
# Remove a pool's nodes that their provider took back. The program's plan comes with the head node's step.
EXPIRE = Task("expire", ("/usr/local/sbin/tailrack-expire",))


def role(settings: ClusterSettings) -> Role:
    """Return the role. files.py makes slurm.conf and related files once the head node has an address."""
    controller = (
        File("/etc/systemd/system/slurmctld.service.d/tailrack.conf", template("slurm", "slurmctld.service.conf")),
        File(RETRY, launcher("retry-jobs"), mode="0755"),
        File(MAIL_PROGRAM, template("slurm", "tailrack-mail"), mode="0755"),
        *_watchdog(CONTROLLER_WATCHDOG, "Restart slurmctld when it hangs", "slurmctld.service"),
        File(f"/usr/local/sbin/{ROOM}", launcher("slurm-room"), mode="0755"),
        unit("slurm", f"{ROOM}.service"),
    )
    compute_files = (
        *_watchdog(WATCHDOG, "Reconnect this node to slurmctld after an outage", "slurmd.service"),
        File(f"/usr/local/sbin/{SHUTDOWN}", template("slurm", SHUTDOWN), mode="0755"),
    )
    save = settings.slurm.save_seconds
    # A configured release is installed already, and these packages would replace it.
    distribution_packages = settings.slurm.release is None
    checked = {
        "cgroups": truth,
        "mpi": matching(r"([1-9][0-9]?(-pmix[1-9][0-9]?)?)?"),
        "slurm_version": version,
    }
    return Role(
        "slurm",
        modules=("host", "nodes", "slurmd", "pod"),
        # Before slurm.conf names their programs.
        after=(
            *("firewall", "munge", "names", "share", "gpu", "pod", "pod_staging"),
            *("slurm_release", "enroot_pyxis", "health"),
        ),
        on_pods=("check_node", "machine", "register"),
        values={
            "job_limit_seconds": settings.slurm.job_limit_seconds,
            "save_seconds": settings.slurm.save_seconds or 0,
            "needs_cgroups": needs_cgroups(settings),
            "release": settings.slurm.release,
            "release_sha256": settings.slurm.release_sha256,
            "release_packages": settings.slurm.release_packages,
            "release_packages_sha256": settings.slurm.release_packages_sha256,
        },
        # One program with two names, which runs the scripts on a node (role health).
        texts={
            "prolog": template("slurm", "tailrack-prolog").replace("KIND", "prolog"),
            "epilog": template("slurm", "tailrack-prolog").replace("KIND", "epilog"),
            "save_jobs": launcher("save-jobs"),
        },
        slurm_conf={"KillWait": SlurmKey(str(save), "tailrack:slurm.save_seconds sets it")} if save else {},
        ports=PORTS,
        holders={"6817": Holder(ACCOUNT), "6819": Holder(ACCOUNT), PORTS[1]: Holder(USERS)},
        serves=PORTS,
        state=("/var/lib/slurm/slurmctld", "/var/lib/tailrack/slurm"),
        packages={
            "head": (*(("slurmctld", "slurm-client") if distribution_packages else ()), MPI),
            "compute": (*(("slurmd", "slurm-client") if distribution_packages else ()), *MEASUREMENT),
            "login": (*(("slurm-client",) if distribution_packages else ()), MPI),
            "pod": ("slurmd", "slurm-client", *MEASUREMENT),
        },
        files={
            "head": controller,
            "compute": compute_files,
            "login": (File(LINK, f"L+ {FROM_CONTROLLER} - - - - {settings.storage.mount}/{PUBLISHED}"),),
            "pod": (File(LOST_JOBS, launcher("pod-lost-jobs"), mode="0755"),),
        },
        tasks={"head": (EXPIRE, Task("retry-jobs", (RETRY,), limit=50))},
        # The check reports the release that is installed or will be; later steps report the running one.
        facts={
            "check": checked,
            "pod_check": checked,
            "head": {"slurm_version": version},
            "compute": {"slurm_version": version},
            "pod": {"slurm_version": version},
        },
    )


def _watchdog(name: str, description: str, daemon: str) -> tuple[File, File]:
    path = f"/usr/local/sbin/{name}"
    return (
        File(path, template("slurm", name), mode="0755"),
        unit_like("daemon", f"{name}.service", description=description, after=daemon, command=path),
    )
