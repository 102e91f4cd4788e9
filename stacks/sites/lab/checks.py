"""What is looked at in lab sites: their nodes' names, and networks that are apart and large enough."""

from collections.abc import Sequence
from ipaddress import IPv4Network

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from lab.subnets import room
from stacks.sites.pools import check_not_empty


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report sites without a node, networks that overlap, and those too small for their nodes."""
    for site in sites:
        check_not_empty(site, head, report)
        subnet, at = site.value("subnet"), site.at("subnet")
        if not isinstance(subnet, IPv4Network):
            continue
        nodes = sum(pool.whole("count") or 0 for pool in site.items("pools"))
        nodes += head.text("site") == site.text("name")
        if room(subnet) < nodes:
            what = f"{report.value(at, str(subnet))} has {room(subnet)} addresses for {nodes} nodes"
            report.add(at, what, "the last nodes would get no address", "write a shorter prefix, such as /24")
    _check_overlaps(sites, report)


def _check_overlaps(sites: Sequence[Draft], report: Report) -> None:
    """In order of their addresses, a network that overlaps another one lies in the widest of those before it."""
    networks = [
        (net, index) for index, site in enumerate(sites) if isinstance(net := site.value("subnet"), IPv4Network)
    ]
    widest: tuple[IPv4Network, int] | None = None
    for one in sorted(networks):
        if widest is None or not one[0].overlaps(widest[0]):
            widest = one
            continue
        (other, first), (subnet, last) = sorted((one, widest), key=lambda pair: pair[1])
        at, place = sites[last].at("subnet"), sites[first].path.removeprefix(ROOT)
        what = f"{report.value(at, str(subnet))} overlaps {place} ({report.value(at, str(other))})"
        breaks = "Docker would refuse the second network, and the sites would not be apart"
        report.add(at, what, breaks, "give the site a network of its own")
