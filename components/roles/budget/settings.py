"""The section `budget`: how much the machines may cost in a month."""

from typing import Annotated

from pydantic import Field

from components.settings.section import Section, key, number
from components.settings.types import Number, Whole

MOST = 1_000_000_000_000


class Budget(Section):
    """A monthly budget of the cluster with all its pools."""

    per_month: Annotated[Number, Field(ge=1, le=MOST)] = key(
        "amount that the machines may cost in a calendar month (UTC), in the stack's `currency`",
        wants=f"an amount from 1 to {MOST}",
        breaks="no one would learn that the budget is spent",
        fix="write the amount of a month, such as 2000",
    )
    tell_percent: Whole = number(
        "the spent share, in percent, at which the alert BudgetNearlySpent fires; BudgetSpent fires at 100",
        1,
        99,
        breaks="the first alert would come too late or never",
        default=80,
    )
