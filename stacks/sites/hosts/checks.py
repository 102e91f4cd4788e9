"""What hosts sites must be to one another: each machine once, and the head node among its site's hosts."""

from __future__ import annotations

from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report, bare, listed
from components.settings.types import Gpu
from stacks.sites.kind import Claim


def claims(site: Draft, head: Draft) -> list[Claim]:
    """The hosts of the site; the head node among them runs jobs if the config says so."""
    head_name = head.text("name") if head.text("site") == site.text("name") else None
    head_computes = head.value("compute") is not False
    found = []
    for host in site.items("hosts"):
        name, gpu = host.text("name"), host.value("gpu")
        compute = head_computes or name is None or name != head_name
        found.append(
            Claim(name, host.at("name"), compute, gpu if isinstance(gpu, Gpu) else None, login=host.text("user"))
        )
    return found


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report machines that are there twice, and a head node that is none of its site's hosts."""
    place, name = head.text("site"), head.text("name")
    first: dict[tuple[str, int], str] = {}
    for site in sites:
        hosts = site.items("hosts")
        for host in hosts:
            address, port = host.value("address"), host.whole("port")
            if not isinstance(address, str) or port is None:
                continue
            there = first.setdefault((address, port), host.path)
            if there != host.path:
                at = host.at("address")
                what = f"{report.value(at, address)} with port {port} is {there.removeprefix(ROOT)} too"
                breaks = "one machine would be set up as two nodes, each undoing the other"
                report.add(at, what, breaks, "write the address of the other machine, or delete one of the two")
        names = {known for host in hosts if (known := host.text("name")) is not None}
        if (
            place is not None
            and name is not None
            and site.text("name") == place
            and 0 < len(names) == len(hosts)
            and name not in names
        ):
            at = head.at("name")
            what = f"{report.value(at, name)} is not a host of site {bare(place)} (its hosts are {listed(names)})"
            report.add(at, what, "no machine would be the head node", "write the name of one of them")
