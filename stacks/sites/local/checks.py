"""Checks of a local site: there is only one, and it has the head node."""

from collections.abc import Iterator, Sequence

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from components.settings.types import Gpu
from stacks.sites.kind import Claim


def claims(site: Draft, head: Draft) -> Iterator[Claim]:
    """Return the head node, if it is at this site."""
    if head.text("site") == site.text("name"):
        gpu = site.value("gpu")
        compute = head.value("compute") is not False
        yield Claim(head.text("name"), head.path_of("name"), compute, gpu if isinstance(gpu, Gpu) else None)


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report a second local site, and a local site without the head node."""
    for site in sites[1:]:
        problem = f"is local, like {sites[0].path.removeprefix(ROOT)}"
        breaks = "this machine would be at two sites"
        report.add(site.path_of("kind"), problem, breaks, "delete one of the two")
    name, head_site = sites[0].text("name") if sites else None, head.text("site")
    if name is not None and head_site is not None and head_site != name:
        problem = "is local, but the head node is at another site"
        breaks = "only the head node can be set up without SSH, so the site would have no node"
        fix = f"write site: {name} in tailrack:head, or list this machine among the hosts of a site of kind hosts"
        report.add(sites[0].path_of("kind"), problem, breaks, fix)
