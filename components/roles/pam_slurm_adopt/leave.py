"""Restore SSH logins."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.pam_slurm_adopt.stack import restore_stack


def leave(step: Step) -> None:
    """Remove the cluster's lines from sshd's PAM stack."""
    restore_stack()
