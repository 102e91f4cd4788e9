"""The month's cost of the cluster's machines, compared with the budget. Pure except `read_budget`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.roles.commands.tailrack.book import Stay, month_begin, spent

# The budget as JSON (spending.py), which `tailrack costs` of all users reads.
BUDGET = "/etc/tailrack/budget"
FULL = 100


@dataclass(frozen=True)
class Budget:
    """The config's budget.

    per_month, currency   the amount
    tell                  percentage at which a first alert fires
    """

    per_month: float
    currency: str
    tell: int = 80


@dataclass(frozen=True)
class Spending:
    """The cost of all machines of the cluster since the first of the month.

    month    such as 2026-11
    amount   in the budget's currency
    hourly   cost per hour now
    others   amounts in other currencies, which do not count
    """

    budget: Budget
    month: str
    amount: float
    hourly: float
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def percent(self) -> int:
        """Return the spent share in percent, rounded down."""
        return int(FULL * self.amount / self.budget.per_month)


def read_budget() -> Budget | None:
    """Return the budget; None if the config has none."""
    try:
        per_month, currency, tell, *_ = json.loads(Path(BUDGET).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Budget(per_month, currency, tell)


def spending(budget: Budget, book: Mapping[str, Sequence[Stay]], now: float) -> Spending:
    """Return this month's spending from the ledger of the machines."""
    begin = month_begin(now)
    amounts: dict[str, float] = {}
    for stays in book.values():
        for unit, amount in spent(stays, begin, now).items():
            amounts[unit] = amounts.get(unit, 0.0) + amount
    open_stays = [stay for stays in book.values() for stay in stays if stay.end is None]
    hourly = sum(stay.price or 0.0 for stay in open_stays if stay.currency == budget.currency)
    month = time.strftime("%Y-%m", time.gmtime(begin))
    return Spending(budget, month, amounts.pop(budget.currency, 0.0), hourly, amounts)


def line(seen: Spending) -> str:
    """Return a line for `tailrack costs` and `tailrack usage`."""
    unit = seen.budget.currency
    text = f"Budget: {seen.amount:,.2f} of {seen.budget.per_month:,.2f} {unit} spent in {seen.month} ({seen.percent} %)"
    if seen.others:
        text += f", without {', '.join(f'{amount:,.2f} {other}' for other, amount in sorted(seen.others.items()))}"
    if not seen.amount and not seen.hourly:
        return f"{text}; no node has a price_per_hour in {unit}."
    return f"{text}."
