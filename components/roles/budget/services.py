"""Install the budget on the head node, or release its jobs and remove it."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.budget.hold import release_jobs
from components.roles.budget.paths import BUDGET, NOTIFY, PROGRAM, UNITS
from components.roles.budget.remove import remove_budget
from components.roles.tailrack_command.slurm import SlurmError

_RELEASE_SECONDS = 30


@dataclass(frozen=True)
class BudgetValues:
    """The program and its units.

    budget_settings   the budget as JSON (spending.py); empty without one
    budget_notify     receivers of messages
    """

    budget_settings: str
    budget_notify: list[str]
    budget_program: str
    budget_unit: str
    budget_timer: str


def services(step: Step, values: BudgetValues) -> None:
    """Install it, and apply the budget now."""
    if not values.budget_settings:
        remove_budget()
        _release(step)
        return
    unit, timer = UNITS
    files.write(NOTIFY, "\n".join(values.budget_notify), 0o600)
    files.write_all(
        [
            File(BUDGET, values.budget_settings),
            File(PROGRAM, values.budget_program, 0o755),
            File(f"{systemd.UNITS}/{unit}", values.budget_unit),
            File(f"{systemd.UNITS}/{timer}", values.budget_timer),
        ]
    )
    systemd.reload(unit, timer)
    systemd.enable(timer, now=True)
    # A raised budget lets jobs start now, and not in a minute.
    if not attempt("systemctl", "start", unit).ok:
        note(f"{unit} failed and is tried again every minute: see 'journalctl -u {unit}' on {step.host}")


def _release(step: Step) -> None:
    """Release the jobs that a budget held which the config no longer has."""
    try:
        released = wait_until(release_jobs, _RELEASE_SECONDS)
    except SlurmError as error:
        raise Failure(f"jobs that the budget held cannot be released: {error}", "repair this, then run up") from None
    if not released:
        raise Failure("slurmctld did not release jobs that the budget held", "run up again")
