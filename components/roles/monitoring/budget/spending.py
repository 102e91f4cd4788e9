"""Read the cost ledger that the head node's steps write (role costs), and compare the month's cost with the budget.

Pure except `read_book` and `read_budget`.
"""

import calendar
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BOOK = Path("/var/lib/tailrack/costs")
# The budget as JSON, which `tailrack costs` of all users reads.
BUDGET = "/etc/tailrack/budget"
FULL = 100
_NODE = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class Stay:
    """A period in which a node was in the cluster at one price.

    begin, end   Unix seconds; `end` is None while the node is in the cluster
    price        per hour; None without a price, and then `currency` is empty
    """

    begin: int
    end: int | None
    price: float | None = None
    currency: str = ""

    def hours(self, begin: float, end: float) -> float:
        """Return how many hours of it lie between two times."""
        until = end if self.end is None else min(self.end, end)
        return max(0.0, until - max(self.begin, begin)) / 3600


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


def read_stays(text: str) -> list[Stay]:
    """Read a node's file. Invalid lines are skipped, because a full disk may have cut one off."""
    return [stay for line in text.splitlines() if (stay := _stay(line.split())) is not None]


def _stay(fields: Sequence[str]) -> Stay | None:
    if len(fields) != 4 or not fields[0].isdecimal() or not (fields[1] == "-" or fields[1].isdecimal()):
        return None
    begin, end = int(fields[0]), None if fields[1] == "-" else int(fields[1])
    if fields[2:] == ["-", "-"]:
        return Stay(begin, end)
    try:
        price = float(fields[2])
    except ValueError:
        return None
    return Stay(begin, end, price, fields[3]) if math.isfinite(price) and price >= 0 else None


def read_book(folder: Path = BOOK) -> dict[str, list[Stay]]:
    """Return all stays by node; empty if there is no ledger."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return {
        file.name: read_stays(file.read_text(encoding="utf-8", errors="replace"))
        for file in files
        if _NODE.fullmatch(file.name)
    }


def joined(stays: Sequence[Stay]) -> int | None:
    """Return when a node joined the cluster, across price changes; None if it is not in the cluster."""
    begin = None
    for stay in reversed(stays):
        if begin is None:
            if stay.end is not None:
                return None
        elif stay.end != begin:
            break
        begin = stay.begin
    return begin


def left(stays: Sequence[Stay]) -> int | None:
    """Return when a node left; None if it is in the cluster or never was."""
    return stays[-1].end if stays else None


def month_begin(now: float) -> int:
    """Return the first second of the month, in UTC."""
    return calendar.timegm((*time.gmtime(now)[:2], 1, 0, 0, 0))


def spent(stays: Iterable[Stay], begin: float, end: float) -> Mapping[str, float]:
    """Return the cost of stays between two times, by currency. Stays without a price are left out."""
    costs: dict[str, float] = {}
    for stay in stays:
        if stay.price is not None and (hours := stay.hours(begin, end)):
            costs[stay.currency] = costs.get(stay.currency, 0.0) + hours * stay.price
    return costs


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


def budget_line(seen: Spending) -> str:
    """Return a line for `tailrack costs` and `tailrack usage`."""
    unit = seen.budget.currency
    text = f"Budget: {seen.amount:,.2f} of {seen.budget.per_month:,.2f} {unit} spent in {seen.month} ({seen.percent} %)"
    if seen.others:
        text += f", without {', '.join(f'{amount:,.2f} {other}' for other, amount in sorted(seen.others.items()))}"
    if not seen.amount and not seen.hourly:
        return f"{text}; no node has a price_per_hour in {unit}."
    return f"{text}."
