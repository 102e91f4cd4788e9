"""Limit each user on the head node, and protect its daemons.

The limits do not include root and the account that tailrack logs in with, whose steps install and build packages. Jobs
run below slurmd, outside of users' slices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from components.node import systemd
from components.node.passwd import user_named
from components.node.run import run
from components.node.step.step import Step
from components.roles.pam_slurm_adopt.login import managing_login
from components.roles.user_limits.logins import why_not_limited
from components.roles.user_limits.protection import PARENTS, PROTECTED, protect_running
from components.roles.user_limits.slices import SCHEDULERS, limits_text, remove_limits, set_limits


@dataclass(frozen=True)
class UserLimitsValues:
    """The section head.user_limits of the config."""

    user_limits_enabled: bool
    user_limits_memory_percent: int
    user_limits_cpu_percent: int
    user_limits_tasks: int


def head(step: Step, values: UserLimitsValues) -> None:
    """Write the drop-ins of slices and units, and have systemd apply them to those that are there."""
    manager = user_named(managing_login())
    unlimited = {0, manager.pw_uid} if manager else {0}
    reason = "none"
    if values.user_limits_enabled:
        changed = set_limits(
            limits_text(
                values.user_limits_memory_percent,
                values.user_limits_cpu_percent,
                values.user_limits_tasks,
                os.cpu_count() or 1,
            ),
            unlimited,
        )
        reason = why_not_limited(step.host)
    else:
        changed = remove_limits(unlimited)
    if changed:
        # systemd's answers about a slice do not include all drop-ins that it would read.
        systemd.reload_later(step)
        systemd.reload_stale()
    # An earlier step may have been cut off before it reloaded.
    systemd.reload(*PROTECTED, *(unit for unit, _ in PARENTS), *SCHEDULERS, *_loaded_slices())
    protect_running()
    step.result("user_limits", reason)


def _loaded_slices() -> list[str]:
    """Return the slices of accounts that are logged in."""
    rows = run("systemctl", "list-units", "--plain", "--no-legend", "user-*.slice").splitlines()
    return [row.split()[0] for row in rows if row.strip()]
