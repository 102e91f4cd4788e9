"""Prices in the config: the hourly price of a machine, its currency, and the section `budget`."""

from configparser import ConfigParser
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import shown
from components.settings.section import Help, Section, key
from components.settings.types import Number, Whole, refuse, word_set

_FILE = ConfigParser()
_FILE.read(Path(__file__).with_name("currencies.ini"), encoding="utf-8")
CURRENCIES, _SMALL = (word_set(_FILE["currencies"][name]) for name in ("all", "small"))
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


def too_much(price: float, currency: object) -> str:
    """Return the problem with a price that is too high for its currency; empty if the price is possible."""
    if price <= MOST or currency in _SMALL or not isinstance(currency, str):
        return ""
    return f"{shown(price)} is more than any machine costs in {currency} per hour"


class Budget(Section):
    """A monthly budget of the cluster with all its pools."""

    per_month: Number = key(fix="write the amount of a month, such as 2000", ge=1, le=10**12)
    """Amount that the machines may cost in a calendar month (UTC), in the stack's `currency`."""
    tell_percent: Whole = key(ge=1, le=99, default=80)
    """The spent share, in percent, at which the alert BudgetNearlySpent fires; BudgetSpent fires at 100."""
