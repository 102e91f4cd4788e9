"""Prices in the config: the hourly price of a machine, its currency, and the section `budget`."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import Report, shown
from components.settings.section import Help, Section, key
from components.settings.types import Number, Whole, refuse, word_set

# ISO 4217, without funds, metals, and codes for tests and for no currency.
CURRENCIES = word_set(
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF"
    " CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL"
    " HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD"
    " MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG"
    " QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD"
    " TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG"
)
# Currencies of which a dollar buys fifty or more.
_SMALL = word_set(
    "AFN ALL AMD AOA ARS BDT BIF CDF CLP COP CRC CVE DJF DOP DZD ETB GMD GNF GYD HTG HUF IDR INR IQD IRR ISK JMD"
    " JPY KES KGS KHR KMF KPW KRW KZT LAK LBP LKR LRD MGA MKD MMK MNT MUR MWK MZN NGN NPR PHP PKR PYG RSD RUB RWF"
    " SDG SOS SSP SYP TZS UGX UZS VES VND VUV XAF XOF XPF YER"
)
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
