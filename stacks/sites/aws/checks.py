"""What is looked at in aws sites: markets and reservations, networks, and that there is a node."""

from collections.abc import Iterator, Sequence

from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.types import Gpu
from stacks.sites.aws.model import MOST_NODES
from stacks.sites.kind import Claim
from stacks.sites.pools import pool_node_names

RESERVED = ("capacity-block", "reservation")


def claims(site: Draft, _head: Draft) -> Iterator[Claim]:
    """The nodes of the site's pools; a count that cannot be read counts as 1."""
    for pool in site.items("pools"):
        name, path, gpu = pool.text("name"), pool.at("name"), pool.value("gpu")
        size = min(max(pool.whole("count") or 1, 1), MOST_NODES)
        for node in pool_node_names(name, size) if name is not None else (None,):
            yield Claim(node, path, gpu=gpu if isinstance(gpu, Gpu) else None)


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report sites without a node, half a network, and pools whose market and reservation do not fit."""
    for site in sites:
        head_here = head.text("site") == site.text("name")
        if not head_here and not site.items("pools") and ("pools" not in site.raw or "pools" in site.values):
            breaks = "its partition would be empty and its measurement wait for nodes"
            report.add(site.at("pools"), "the site has no nodes", breaks, "add a pool, or delete the site")
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
