"""What is looked at in lab sites: their nodes' names, and networks that are apart and large enough."""

from collections.abc import Sequence
from ipaddress import IPv4Network

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from stacks.sites.kind import Claim
from stacks.sites.lab.model import MOST_NODES, pool_node_names

# The network, its broadcast, its gateway and the lab's control server.
_SPARE = 4


def claims(site: Draft, _head: Draft) -> list[Claim]:
    """The nodes of the site's pools; a count that cannot be read counts as 1."""
    found = []
    for pool in site.items("pools"):
        name, path = pool.text("name"), pool.at("name")
        size = min(max(pool.whole("count") or 1, 1), MOST_NODES)
        found += [Claim(node, path) for node in (pool_node_names(name, size) if name is not None else [None])]
    return found


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report sites without a node, networks that overlap, and those too small for their nodes."""
    seen: list[tuple[IPv4Network, str]] = []
    for site in sites:
        head_here = head.text("site") == site.text("name")
        if not head_here and not site.items("pools") and ("pools" not in site.raw or "pools" in site.values):
            breaks = "its partition would be empty and its measurement wait for nodes"
            report.add(site.at("pools"), "the site has no nodes", breaks, "add a pool, or delete the site")
        subnet, at = site.value("subnet"), site.at("subnet")
        if not isinstance(subnet, IPv4Network):
            continue
        for other, place in seen:
            if subnet.overlaps(other):
                what = f"{report.value(at, str(subnet))} overlaps {place} ({report.value(at, str(other))})"
                breaks = "Docker would refuse the second network, and the sites would not be apart"
                report.add(at, what, breaks, "give the site a network of its own")
        seen.append((subnet, site.path.removeprefix(ROOT)))
        nodes = sum(pool.whole("count") or 0 for pool in site.items("pools")) + head_here
        room = max(subnet.num_addresses - _SPARE, 0)
        if subnet.num_addresses - _SPARE < nodes:
            what = f"{report.value(at, str(subnet))} has {room} addresses for {nodes} nodes"
            report.add(at, what, "the last nodes would get no address", "write a shorter prefix, such as /24")
