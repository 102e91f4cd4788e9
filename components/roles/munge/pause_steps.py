"""Pause slurmstepd while the keys differ.

slurmctld rejects a step's end that is signed with another key, and slurmstepd does not repeat it: the job would stay in
Slurm's records and run again. The jobs themselves continue.
"""

from __future__ import annotations

from components.node.run import attempt, run

# Seconds after which slurmstepd continues, even if the key change is not finished.
_LIMIT = 30
_CONTINUE = ("pkill", "-CONT", "-x", "slurmstepd")


def pause_steps() -> None:
    """Pause them. Set systemd's timer first: it works even if this program is killed."""
    timer = ("--collect", "--timer-property=AccuracySec=1s", f"--on-active={_LIMIT}")
    run("systemd-run", "-q", *timer, *_CONTINUE)
    attempt("pkill", "-STOP", "-x", "slurmstepd")


def resume_steps() -> None:
    """Let them continue."""
    attempt(*_CONTINUE)
