"""Checks of lab sites: at least one node, and separate networks that are large enough."""

from collections.abc import Sequence
from ipaddress import IPv4Network

from components.settings.cluster import Head
from components.settings.problems import ROOT, Report
from lab.subnets import room
from stacks.sites.lab.model import LabSite, nodes
from stacks.sites.pools import check_not_empty


def check(sites: Sequence[LabSite], head: Head, report: Report) -> None:
    """Report sites without nodes, overlapping networks, and networks that are too small."""
    for site in sites:
        check_not_empty(site, site.pools, head, report)
        if site.subnet is not None and room(site.subnet) < (count := len(nodes(site, head))):
            problem, breaks = f"has {room(site.subnet)} addresses for {count} nodes", "the last would get no address"
            report.bad((site, "subnet"), problem, breaks, "write a shorter prefix, such as /24")
    _check_overlaps(sites, report)


def _check_overlaps(sites: Sequence[LabSite], report: Report) -> None:
    # Sorted by address, a network that overlaps any earlier one overlaps the largest of these.
    networks = [(site.subnet, index) for index, site in enumerate(sites) if site.subnet is not None]
    widest: tuple[IPv4Network, int] | None = None
    for current in sorted(networks):
        if widest is None or not current[0].overlaps(widest[0]):
            widest = current
            continue
        (other, first), (_, last) = sorted((current, widest), key=lambda pair: pair[1])
        path, place = report.at(sites[last], "subnet"), report.at(sites[first]).removeprefix(ROOT)
        breaks = "Docker would reject the second network, and the sites would not be separate"
        problem = f"overlaps {place} ({report.value(path, str(other))})"
        report.bad((sites[last], "subnet"), problem, breaks, "give the site its own network")
