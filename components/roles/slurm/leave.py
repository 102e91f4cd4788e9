"""Stop Slurm for good and remove its files of the cluster."""

from __future__ import annotations

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.node.systemd import UNITS, is_active, retire, retire_daemon
from components.roles.slurm.folder import CONTROLLER_STATE, leave_slurm_folder, take_slurm_folder, was_controller
from components.roles.slurm.paths import CONF
from components.roles.users.host import end_sessions

_SCOPE = "slurmstepd.scope.d"
_FILES = (
    *("slurm.conf", "gres.conf", "topology.conf", "cgroup.conf", "mpi.conf", "job_submit.lua"),
    *("tailrack-prolog", "tailrack-epilog"),
)


def leave(step: Step) -> None:
    """Undo the work of all phases. A failing part does not end the others."""
    # User programs would keep the share from being unmounted.
    for part in (_retire, end_steps, end_sessions, _forget_files, _forget_state, leave_slurm_folder):
        try:
            part()
        except (Failure, OSError) as error:
            note(str(error))


def _retire() -> None:
    programs = ("slurmd-watchdog", "slurmctld-watchdog", "slurm-room", "shutdown")
    retire(*(f"tailrack-{name}.service" for name in programs))
    retire_daemon("slurmd")
    retire_daemon("slurmctld")


def end_steps() -> None:
    """End the remains of jobs. The process that keeps their scope alive ends with the scope."""
    if not files.exists(f"{UNITS}/slurmd.service.d/tailrack.conf"):
        return
    for name in files.names_in(UNITS):
        scope = name.removesuffix(".d")
        # The scope may end on its own meanwhile.
        if name.endswith(_SCOPE) and is_active(scope):
            attempt("systemctl", "stop", scope)
    # Without cgroups no scope contains them.
    attempt("pkill", "-KILL", "-x", "slurmstepd")
    files.remove_folder("/var/spool/slurmd")


def _forget_files() -> None:
    for name in _FILES:
        if "Written by tailrack." in (files.read(f"{CONF}/{name}") or ""):
            files.remove(f"{CONF}/{name}")


def _forget_state() -> None:
    if was_controller():
        take_slurm_folder()
        files.empty_folder(CONTROLLER_STATE)
