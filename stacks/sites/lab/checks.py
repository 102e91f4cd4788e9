"""Checks of lab sites: at least one node, and separate networks that are large enough."""

from collections.abc import Sequence
from ipaddress import IPv4Network

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from lab.subnets import room
from stacks.sites.pools import check_not_empty


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report sites without nodes, overlapping networks, and networks that are too small."""
    for site in sites:
        check_not_empty(site, head, report)
        subnet, path = site.value("subnet"), site.path_of("subnet")
        if not isinstance(subnet, IPv4Network):
            continue
        nodes = sum(pool.whole("count") or 0 for pool in site.items("pools"))
        nodes += head.text("site") == site.text("name")
        if room(subnet) < nodes:
            problem = f"{report.value(path, str(subnet))} has {room(subnet)} addresses for {nodes} nodes"
            report.add(path, problem, "the last nodes would get no address", "write a shorter prefix, such as /24")
    _check_overlaps(sites, report)


def _check_overlaps(sites: Sequence[Draft], report: Report) -> None:
    # Sorted by address, a network that overlaps any earlier one overlaps the largest of these.
    networks = [
        (net, index) for index, site in enumerate(sites) if isinstance(net := site.value("subnet"), IPv4Network)
    ]
    widest: tuple[IPv4Network, int] | None = None
    for current in sorted(networks):
        if widest is None or not current[0].overlaps(widest[0]):
            widest = current
            continue
        (other, first), (subnet, last) = sorted((current, widest), key=lambda pair: pair[1])
        path, place = sites[last].path_of("subnet"), sites[first].path.removeprefix(ROOT)
        problem = f"{report.value(path, str(subnet))} overlaps {place} ({report.value(path, str(other))})"
        breaks = "Docker would reject the second network, and the sites would not be separate"
        report.add(path, problem, breaks, "give the site its own network")
