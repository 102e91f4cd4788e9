"""Start or remove accounting.

Nodes do not wait for it: slurmctld starts without slurmdbd and uses it when it answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node.step.step import Step
from components.roles.accounting import database, slurmdbd
from components.roles.accounting.associations import EntriesValues, apply_associations
from components.roles.accounting.remove import end_accounting
from components.roles.accounting.switch import is_enforced, leave_slurmdbd, take_accounting

_PACKAGES = ("slurmdbd", "slurm-wlm-mysql-plugin")


@dataclass(frozen=True)
class AccountingValues(slurmdbd.DaemonValues, EntriesValues):
    """The config's accounting.

    accounting_enforce  whether the config has a limit, an account or a QOS
    slurm_release       the Slurm release that the config sets; empty for the distribution's
    """

    accounting_enabled: bool
    accounting_enforce: bool
    slurm_release: str


def services(step: Step, values: AccountingValues) -> None:
    """Bring the database, slurmdbd, slurmctld and slurmdbd's entries to the config."""
    if not values.accounting_enabled:
        leave_slurmdbd(step)
        end_accounting()
        return
    slurmdbd.set_foreign_slurmdbd_aside()
    # The role slurm_release has already installed a release that the config sets.
    database.install(step, *(() if values.slurm_release else _PACKAGES))
    database.start(step)
    database.limit_account(step)
    database.restore_dump(step)
    slurmdbd.start(step, values)
    # Enforce limits only after all users have an account; limits in force stay in force meanwhile.
    take_accounting(step, values, enforced=values.accounting_enforce and is_enforced())
    apply_associations(step, values)
    if values.accounting_enforce:
        take_accounting(step, values, enforced=True)
