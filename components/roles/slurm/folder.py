"""The parent folder of the state of Slurm's daemons.

Slurm's packages give it to Slurm's account. On a head node root owns it, so that the account cannot replace root's
paths by links.
"""

from __future__ import annotations

from components.node import files
from components.node.folders import give, take
from components.node.passwd import user_named
from components.node.step.step import STATE_DIR
from components.node.systemd import UNITS

SLURM_FOLDER = "/var/lib/slurm"
# slurmctld's state.
CONTROLLER_STATE = f"{SLURM_FOLDER}/slurmctld"
# Exists while slurmctld's state is a restored backup, which belongs to root even if a package changed its owner.
_RESTORED = f"{STATE_DIR}/slurm-restored"


def take_slurm_folder() -> None:
    """Make root its owner."""
    take(SLURM_FOLDER)


def give_slurm_state() -> None:
    """Give slurmctld's account its state folder."""
    take_slurm_folder()
    if files.exists(_RESTORED) and files.is_folder(CONTROLLER_STATE):
        take(CONTROLLER_STATE, 0o700)
    give("slurm", 0o700, CONTROLLER_STATE)
    files.remove(_RESTORED)


def mark_restored() -> None:
    """Record that slurmctld's state is a restored backup."""
    files.write(_RESTORED, "")


def was_controller() -> bool:
    """Return whether this machine ran the cluster's slurmctld."""
    return files.exists(f"{UNITS}/slurmctld.service.d/tailrack.conf")


def leave_slurm_folder() -> None:
    """Give the parent folder back to Slurm's account, as the packages have it, once root is done there."""
    if was_controller() and files.is_folder(SLURM_FOLDER) and user_named("slurm"):
        files.make_folder(SLURM_FOLDER, 0o755, "slurm")
