"""Checks of a local site: there is only one, and it has the head node."""

from collections.abc import Sequence

from components.settings.cluster import Head
from components.settings.problems import ROOT, Report
from stacks.sites.local.model import LocalSite


def check(sites: Sequence[LocalSite], head: Head, report: Report) -> None:
    """Report a second local site, and a local site without the head node."""
    for site in sites[1:]:
        problem = f"is local, like {report.at(sites[0]).removeprefix(ROOT)}"
        report.add((site, "kind"), problem, "this machine would be at two sites", "delete one of the two")
    if sites and head.site != sites[0].name:
        name, breaks = sites[0].name, "only the head node can be set up without SSH, so the site would have no node"
        fix = f"write site: {name} in tailrack:head, or list this machine among the hosts of a site of kind hosts"
        report.add((sites[0], "kind"), "is local, but the head node is at another site", breaks, fix)
