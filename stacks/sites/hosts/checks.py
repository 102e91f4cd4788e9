"""What hosts sites must be to one another: each machine once, and the head node among its site's hosts."""

from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report, bare, listed
from components.settings.types import Gpu
from stacks.sites.kind import Claim


def claims(site: Draft, head: Draft) -> list[Claim]:
    """The hosts of the site; the head node among them runs jobs if the config says so."""
    head_name = head.text("name") if head.text("site") == site.text("name") else None
    found = []
    for host in site.items("hosts"):
        name, gpu = host.text("name"), host.value("gpu")
        compute = head.value("compute") is not False or name is None or name != head_name
        found.append(Claim(name, host.at("name"), compute, gpu if isinstance(gpu, Gpu) else None, host.text("user")))
    return found


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report machines that are there twice, and a head node that is none of its site's hosts."""
    first: dict[tuple[object, str, int], Draft] = {}
    for site, host in ((at, host) for at in sites for host in at.items("hosts")):
        address, port = host.value("address"), host.whole("port")
        if not isinstance(address, str) or port is None:
            continue
        # Behind another bastion the same address is another machine.
        through = site.section("bastion").values.get("address")
        if (other := first.setdefault((through, address, port), host)) is not host:
            place = other.path
            what = f"{report.value(host.path, address)} with port {port} is {place.removeprefix(ROOT)} too"
            breaks = "one machine would be set up as two nodes, each undoing the other"
            fix = "write the address of the other machine, or delete one of the two"
            report.add(host.at("address"), what, breaks, fix)
    name, at_site = head.text("name"), head.text("site")
    for site in sites:
        names = [host.text("name") for host in site.items("hosts")]
        known = {name for name in names if name is not None}
        if at_site is None or site.text("name") != at_site or name is None or name in known:
            continue
        if 0 < len(known) == len(names):  # each has a name of its own
            what = (
                f"{report.value(head.path, name)} is not a host of site {bare(at_site)} (its hosts are {listed(known)})"
            )
            report.add(head.at("name"), what, "no machine would be the head node", "write the name of one of them")
