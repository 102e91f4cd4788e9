"""Checks of names that must not meet: nodes, partitions, sites and the head node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stacks.config_draft import Draft, meant
from stacks.config_problems import ROOT, Report, below, shown
from stacks.config_types import CROSS_SITE, Gpu

ALL = "all"  # the default partition


@dataclass(frozen=True)
class Claim:
    """A node that some part of the config makes: its name, the key that says so, and where that is in words."""

    name: str
    path: str
    compute: bool = True

    @property
    def place(self) -> str:
        """The mapping that makes the node, without the config's namespace."""
        return self.path.removeprefix(ROOT).removesuffix(".name")


def check_nodes(config: Draft, report: Report) -> None:
    """Report names that meet, references that lead nowhere, and a cluster without a node to run on."""
    sites = config.items("sites")
    nodes = _nodes(config, sites)
    _check_twice(nodes, report)
    _check_partitions(config, sites, nodes, report)
    _check_head(config.section("head"), sites, report)
    _check_somewhere_to_run(config, sites, nodes, report)
    _check_site_names(config, sites, report)


def pool_node_names(pool: str, count: int) -> tuple[str, ...]:
    """The names of a lab pool's nodes: the pool's name and 1, 2, ... up to `count`."""
    return tuple(f"{pool}{index}" for index in range(1, count + 1))


def _bare(name: str) -> str:
    """A name as running text has it; one that is no name, as a message shows a value."""
    return name if re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name) and shown(name) == repr(name) else shown(name)


def _nodes(config: Draft, sites: tuple[Draft, ...]) -> list[Claim]:
    head = config.section("head")
    head_name, head_site = head.text("name") or "head", head.text("site")
    computes = head.values.get("compute") is not False and "compute" in head.raw
    claims = []
    if not any(site.text("kind") == "hosts" for site in sites if site.text("name") == head_site) and head.raw:
        claims.append(Claim(head_name, head.at("name"), computes))
    for site in sites:
        for pool in site.items("pools"):
            count = pool.whole("count")
            if (name := pool.text("name")) is not None:
                size = 1 if count is None else min(max(count, 1), 1000)
                claims += [Claim(node, pool.at("name")) for node in pool_node_names(name, size)]
        for host in site.items("hosts"):
            if (name := host.text("name")) is not None:
                is_head = name == head_name and site.text("name") == head_site
                claims.append(Claim(name, host.at("name"), computes or not is_head))
    return claims


def _check_twice(nodes: list[Claim], report: Report) -> None:
    first: dict[str, Claim] = {}
    again: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        holder = first.setdefault(node.name, node)
        if holder is not node:
            again.setdefault((node.path, holder.place), []).append(node.name)
    for (path, place), names in again.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        what = f"makes node {_bare(names[0])}{more} a second time (also in {place})"
        report.add(path, what, "Slurm would drain one of the two", "give one of them another name")


def _check_partitions(config: Draft, sites: tuple[Draft, ...], nodes: list[Claim], report: Report) -> None:
    names: dict[str, str] = {}  # without `all`, which no name may be
    claims = [(site, "site") for site in sites] + [
        (extra, "partition") for extra in config.section("slurm").items("partitions")
    ]
    kinds = {
        gpu.kind for site in sites for host in site.items("hosts") if isinstance(gpu := host.values.get("gpu"), Gpu)
    }
    for kind in sorted(kinds):
        names[kind] = f"the partition of the {kind} GPUs"
    for claim, word in claims:
        name, path = claim.text("name"), claim.at("name")
        if name is None:
            continue
        if name in names:
            what = f"{report.value(path, name)} names a partition a second time (it is {names[name]})"
            report.add(path, what, "slurmctld would refuse its config", f"give the {word} another name")
        names.setdefault(name, f"the partition of {claim.path.removeprefix(ROOT)}")
    for path, name in {node.path: node.name for node in nodes if node.name in names}.items():
        what = f"makes node {_bare(name)}, which has the name of a partition ({names[name]})"
        report.add(path, what, "the node could not register with slurmctld", "give one of them another name")


def _named(sites: tuple[Draft, ...]) -> set[str] | None:
    """The names of all sites; None when a site's name cannot be read, for then nothing can be said to be missing."""
    names = {name for site in sites if (name := site.text("name")) is not None}
    return names if sites and all(site.text("name") is not None for site in sites) else None


def _check_head(head: Draft, sites: tuple[Draft, ...], report: Report) -> None:
    place, path = head.text("site"), head.at("site")
    known = _named(sites)
    if place is None:
        return
    if known is not None and place not in known:
        what = f"{report.value(path, place)} is not a site (sites are {_listed(known)})"
        report.add(path, what, "the head node would be nowhere", meant(place, known))
    for site in sites:
        if site.text("name") != place or site.text("kind") != "hosts":
            continue
        hosts = {name for host in site.items("hosts") if (name := host.text("name")) is not None}
        name, path = head.text("name") or "head", head.at("name")
        if hosts and len(hosts) == len(site.items("hosts")) and name not in hosts:
            what = f"{report.value(path, name)} is not a host of site {_bare(place)} (its hosts are {_listed(hosts)})"
            report.add(path, what, "no machine would be the head node", "write the name of one of them")


def _listed(names: set[str]) -> str:
    return ", ".join(_bare(name) for name in sorted(names)[:10]) + (", ..." if len(names) > 10 else "")


def _check_somewhere_to_run(config: Draft, sites: tuple[Draft, ...], nodes: list[Claim], report: Report) -> None:
    readable = all(
        site.text("kind") in ("lab", "hosts")
        and all(key not in site.raw or key in site.lists for key in ("pools", "hosts"))
        and all(item.text("name") is not None for key in ("pools", "hosts") for item in site.items(key))
        for site in sites
    )
    if sites and readable and not any(node.compute for node in nodes):
        report.add(
            ROOT + "sites",
            "no node runs jobs",
            "every job would wait for ever",
            "add a pool or a host, or set compute: true in tailrack:head",
        )
    head_site = config.section("head").text("site")
    for site in sites:
        if (
            site.text("kind") != "lab"
            or site.text("name") == head_site
            or ("pools" in site.raw and "pools" not in site.lists)
        ):
            continue
        if not site.items("pools"):
            breaks = "its partition would be empty and its measurement wait for nodes"
            report.add(site.at("pools"), "the site has no nodes", breaks, "add a pool, or delete the site")


def _check_site_names(config: Draft, sites: tuple[Draft, ...], report: Report) -> None:
    known = _named(sites)
    if known is None:
        return
    for partition in config.section("slurm").items("partitions"):
        listed = partition.values.get("sites", ())
        names = listed if isinstance(listed, tuple) else ()
        for index, name in enumerate(names):
            path = below(partition.at("sites"), index)
            if name not in known:
                what = f"{report.value(path, name)} is not a site (sites are {_listed(known)})"
                report.add(path, what, "slurmctld would refuse its config", meant(name, known))
            elif name in names[:index]:
                what = f"{report.value(path, name)} is in the list twice"
                report.add(path, what, "one of the two was meant to be another site", "take it out")
    floors = config.section("validation")
    scopes = floors.raw.get("floors_gb_per_s")
    for scope in scopes if isinstance(scopes, Mapping) else ():
        if str(scope) not in known | {CROSS_SITE}:
            path = below(floors.at("floors_gb_per_s"), str(scope))
            breaks = "the floor would be held against nothing"
            report.add(path, "is neither a site nor cross-site", breaks, meant(str(scope), known | {CROSS_SITE}))
