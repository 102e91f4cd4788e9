"""Pause slurmstepd while the keys differ.

slurmctld rejects a step's end that is signed with another key, and slurmstepd does not repeat it: the job would stay in
Slurm's records and run again. The jobs themselves continue.
"""

from __future__ import annotations

from components.node import services
from components.node.run import attempt
from components.roles.ssh_trust.answers import ANSWERS

# Seconds after which slurmstepd continues, even if the key change is not finished.
_LIMIT = 30
# An argument of munge-switch, which the head node cannot send.
RESUME = "resume"
_CONTINUE = ("pkill", "-CONT", "-x", "slurmstepd")


def pause_steps() -> None:
    """Pause them. Set the timer first: it works even if this program is killed."""
    services.begin_later(_LIMIT, *_CONTINUE)
    attempt("pkill", "-STOP", "-x", "slurmstepd")


def resume_steps() -> None:
    """Let them continue."""
    attempt(*_CONTINUE)


def resume_steps_later() -> None:
    """Let them continue once slurmctld accepts this machine again, without waiting for that here."""
    services.begin_later(0, f"{ANSWERS}/munge-switch", RESUME)
