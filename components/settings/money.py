"""Prices in the config: the hourly price of a machine, its currency, and the section `budget`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import Report, shown
from components.settings.section import Help, Section, key
from components.settings.types import Number, Whole, refuse

# ISO 4217, without funds, metals, and codes for tests and for no currency. `small`: a dollar buys fifty or more.
_ROWS = Path(__file__).with_name("currencies.txt").read_text(encoding="utf-8").splitlines()
CURRENCIES, _SMALL = {row.split()[0] for row in _ROWS}, {row.split()[0] for row in _ROWS if " " in row}
# Highest price of one machine per hour. The most expensive rented machine costs about a hundred dollars.
MOST, MOST_OF_SMALL = 1_000, 10_000_000
DEFAULT_CURRENCY = "USD"


def _currency(value: str) -> str:
    if value not in CURRENCIES:
        code = value.upper()[:3]
        fix = f"did you mean '{code}'?" if code in CURRENCIES else None
        refuse("is not a currency's code in ISO 4217", fix=fix)
    return value


Currency = Annotated[
    str,
    Field(
        description="Currency of all `price_per_hour` of this stack, as an ISO 4217 code. A pool may use another "
        "currency; amounts in two currencies are shown side by side and never added."
    ),
    AfterValidator(_currency),
    Help("a currency's code in ISO 4217", "write one such as USD or EUR"),
]
Price = Annotated[
    Number,
    Field(ge=0, le=MOST_OF_SMALL),
    Help(
        f"an amount from 0 to {MOST:,} (to {MOST_OF_SMALL:,} in a currency such as JPY)",
        "write the provider's price of one machine, such as 2.49",
    ),
]


def check_prices(sections: Iterable[Section], currency: str, report: Report) -> None:
    """Report prices that are too high for the stack's currency, usually in cents or another currency."""
    for section in sections if currency not in _SMALL else ():
        price = getattr(section, "price_per_hour", None) or 0
        if price > MOST:
            problem = f"{shown(price)} is more than any machine costs in {currency} per hour"
            fix = "write the price of one machine per hour, with a point before the cents"
            report.add((section, "price_per_hour"), problem, "every cost would be wrong", fix)


class Budget(Section):
    """A monthly budget of the cluster with all its pools."""

    per_month: Number = key(fix="write the amount of a month, such as 2000", ge=1, le=10**12)
    """Amount that the machines may cost in a calendar month (UTC), in the stack's `currency`."""
    tell_percent: Whole = key(ge=1, le=99, default=80)
    """The spent share, in percent, at which the alert BudgetNearlySpent fires; BudgetSpent fires at 100."""
