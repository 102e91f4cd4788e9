"""The parent folder of the state of Slurm's daemons.

Slurm's packages give it to Slurm's account. On a head node root owns it, so that the account cannot replace root's
paths by links.
"""

from __future__ import annotations

from components.node.folders import take

SLURM_FOLDER = "/var/lib/slurm"


def take_slurm_folder() -> None:
    """Make root its owner."""
    take(SLURM_FOLDER)
