"""What a local site must be: the only one of its kind, with the head node."""

from collections.abc import Iterator, Sequence

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from components.settings.types import Gpu
from stacks.sites.kind import Claim


def claims(site: Draft, head: Draft) -> Iterator[Claim]:
    """The head node, if it stands here."""
    if head.text("site") == site.text("name"):
        gpu = site.value("gpu")
        compute = head.value("compute") is not False
        yield Claim(head.text("name"), head.at("name"), compute, gpu if isinstance(gpu, Gpu) else None)


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report a second local site, and one without the head node."""
    for site in sites[1:]:
        what = f"is local, as {sites[0].path.removeprefix(ROOT)} is"
        breaks = "this machine would stand at two sites"
        report.add(site.at("kind"), what, breaks, "delete one of the two")
    name, at_site = sites[0].text("name") if sites else None, head.text("site")
    if name is not None and at_site is not None and at_site != name:
        what = "is local, and the head node stands elsewhere"
        breaks = "steps run on this machine without SSH for the head node alone, and the site would have no node"
        fix = f"write site: {name} in tailrack:head, or list this machine among the hosts of a site of kind hosts"
        report.add(sites[0].at("kind"), what, breaks, fix)
