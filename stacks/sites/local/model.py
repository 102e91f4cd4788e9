"""Settings of the site of this machine, and its only node, the head node."""

from typing import Literal

from components.settings.cluster import Head
from components.settings.problems import Report, Stack
from stacks.sites.hosts.model import ExistingMachine
from stacks.sites.kind import NodeSpec, Site


class LocalSite(ExistingMachine, Site):
    """The site of the machine that runs tailrack. It lists no machines, because the head node is the only one."""

    kind: Literal["local"]
    """This machine, as the head node."""

    def check(self, stack: Stack, report: Report) -> None:
        sites = self.all_of_kind(stack)
        for site in sites[1:]:
            problem = f"is local, like {report.place(self)}"
            report.add((site, "kind"), problem, "this machine would be at two sites", "delete one of the two")
        if sites and stack.head.site != self.name:
            breaks = "only the head node can be set up without SSH, so the site would have no node"
            fix = f"write site: {self.name} in tailrack:head, or list this machine at a site of kind hosts"
            report.add((self, "kind"), "is local, but the head node is at another site", breaks, fix)


def nodes(site: LocalSite, head: Head) -> list[NodeSpec]:
    """Return the head node, if it is at the site."""
    if head.site != site.name:
        return []
    return [NodeSpec.of(site, head, head.name, site.features, site.gpu, adopt=site.adopt, take_over=site.take_over)]
