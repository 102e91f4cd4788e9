"""What is looked at in aws sites: markets and reservations, networks, and that there is a node."""

from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.problems import Report
from stacks.sites.pools import check_not_empty

RESERVED = ("capacity-block", "reservation")


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report sites without a node, half a network, and pools whose market and reservation do not fit."""
    for site in sites:
        check_not_empty(site, head, report)
        for one, other in (("subnet", "vpc"), ("vpc", "subnet")):
            if one in site.raw and other not in site.raw:
                what = f"there is no {other} with it"
                report.add(site.at(one), what, "instances and their rules would be in two networks", f"write {other}")
        for pool in site.items("pools"):
            _check_market(pool, report)


def _check_market(pool: Draft, report: Report) -> None:
    market, reserved = pool.text("market"), "reservation" in pool.raw
    if market in RESERVED and not reserved:
        what = f"{market} without a reservation"
        report.add(pool.at("reservation"), what, "EC2 would not know which one", "write the id, cr-...")
    if reserved and market not in (*RESERVED, None):
        what = f"a reservation, and market is {report.value(pool.at('market'), market)}"
        fix = "write market: reservation or capacity-block, or leave the reservation out"
        report.add(pool.at("reservation"), what, "the reservation would be paid and not used", fix)
