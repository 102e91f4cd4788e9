"""The nodes of a hosts site: its hosts, the head node one of them where it stands there."""

from __future__ import annotations

from dataclasses import dataclass

from components.settings.cluster import Head
from components.settings.draft import Draft
from components.settings.types import Gpu
from stacks.sites.hosts.model import HostConfig, HostsSite
from stacks.sites.kind import Claim, NodeSpec


@dataclass(frozen=True)
class HostNode(NodeSpec):
    """A machine that is there already."""

    host: HostConfig


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


def nodes(site: HostsSite, head: Head) -> list[HostNode]:
    """The nodes of the site."""
    head_name = head.name if head.site == site.name else None
    return [
        HostNode(
            host.name,
            site.name,
            host.features,
            host.gpu,
            host.name == head_name,
            head.compute or host.name != head_name,
            host,
        )
        for host in site.hosts
    ]
