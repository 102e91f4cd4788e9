"""Checks that compare values of the stack config with one another, over whatever could be read of it."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import PurePosixPath

from components.validation.sizes import format_size, sizes_between
from stacks.config_draft import Draft
from stacks.config_fields import Storage, Validation
from stacks.config_node_checks import check_nodes
from stacks.config_problems import ROOT, Report
from stacks.config_slurm_keys import check_settings


def check(config: Draft, report: Report) -> None:
    """Report every clash between values of the config."""
    sites = config.items("sites")
    check_nodes(config, report)
    _check_users(config.items("users"), sites, report)
    _check_endpoints(sites, report)
    _check_subnets(sites, config.section("head"), report)
    _check_storage(config.section("storage"), report)
    check_settings(config.section("slurm"), report)
    _check_tailnet(config.section("tailnet"), sites, report)
    _check_sizes(config.section("validation"), report)


def _check_users(users: tuple[Draft, ...], sites: tuple[Draft, ...], report: Report) -> None:
    logins = {host.text("user"): host.path.removeprefix(ROOT) for site in sites for host in site.items("hosts")}
    names: dict[str, str] = {}
    uids: dict[int, str] = {}
    gids: dict[int, str] = {}
    for user in users:
        place = user.path.removeprefix(ROOT)
        name, uid = user.text("name"), user.whole("uid")
        gid = user.whole("gid") if "gid" in user.raw else uid
        if name is not None:
            at = user.at("name")
            value = report.value(at, name)
            if names.setdefault(name, place) != place:
                what = f"{value} is the name of {names[name]} too"
                report.add(at, what, "one account would get the numbers of both", "give one of them another name")
            elif name in logins and name != "root":
                what = f"{value} is the account that the program logs in with at {logins[name]}"
                report.add(at, what, "its uid cannot change while it is logged in", "give the user another name")
        if uid is not None and uids.setdefault(uid, place) != place:
            at = user.at("uid")
            what = f"{report.value(at, uid)} is the uid of {uids[uid]} too"
            report.add(at, what, "the two would own each other's files", "give one of them another uid")
        elif gid is not None and gids.get(gid, place) != place:
            at = user.at("gid" if "gid" in user.raw else "uid")
            what = f"{report.value(at, gid)} is the gid of {gids[gid]} too"
            breaks = "the second group could not be made, and the two would share group files"
            report.add(at, what, breaks, "give one of them another gid")
        if gid is not None:
            gids.setdefault(gid, place)


def _check_endpoints(sites: tuple[Draft, ...], report: Report) -> None:
    first: dict[tuple[str, int], str] = {}
    for host in (host for site in sites for host in site.items("hosts")):
        address = host.values.get("address")
        port = host.whole("port") if "port" in host.raw else 22
        if not isinstance(address, str) or port is None:
            continue
        place = first.setdefault((address, port), host.path)
        if place != host.path:
            at = host.at("address")
            what = f"{report.value(at, address)} with port {port} is {place.removeprefix(ROOT)} too"
            breaks = "one machine would be set up as two nodes, each undoing the other"
            report.add(at, what, breaks, "write the address of the other machine, or delete one of the two")


def _check_subnets(sites: tuple[Draft, ...], head: Draft, report: Report) -> None:
    seen: list[tuple[IPv4Network, str]] = []
    for site in sites:
        subnet = site.values.get("subnet")
        if not isinstance(subnet, IPv4Network):
            continue
        at = site.at("subnet")
        for other, place in seen:
            if subnet.overlaps(other):
                what = f"{report.value(at, str(subnet))} overlaps {place} ({report.value(at, str(other))})"
                breaks = "Docker would refuse the second network, and the sites would not be apart"
                report.add(at, what, breaks, "give the site a network of its own")
        seen.append((subnet, site.path.removeprefix(ROOT)))
        counts = [pool.whole("count") if "count" in pool.raw else 1 for pool in site.items("pools")]
        nodes = sum(count for count in counts if count is not None) + (head.text("site") == site.text("name"))
        spare = 4  # the network, its broadcast, its gateway and the lab's control server
        if subnet.num_addresses - spare < nodes:
            room = max(subnet.num_addresses - spare, 0)
            what = f"{report.value(at, str(subnet))} has {room} addresses for {nodes} nodes"
            report.add(at, what, "the last nodes would get no address", "write a shorter prefix, such as /24")


def _check_storage(storage: Draft, report: Report) -> None:
    def folder(key: str) -> PurePosixPath | None:
        written = storage.values.get(key, None if key in storage.raw else Storage.model_fields[key].default)
        return PurePosixPath(written) if isinstance(written, str) else None

    path, mount = folder("path"), folder("mount")
    if path is None or mount is None:
        return
    if path.is_relative_to(mount) or mount.is_relative_to(path):
        at = storage.at("mount" if "mount" in storage.raw or "path" not in storage.raw else "path")
        word = "is" if path == mount else "lies within, or around,"
        other = "path" if at == storage.at("mount") else "mount"
        value, against = (mount, path) if other == "path" else (path, mount)
        what = f"{report.value(at, value)} {word} {report.value(at, against)}, the {other} of the share"
        breaks = "the head node would mount the share over itself and hang"
        report.add(at, what, breaks, "keep the two apart, such as /export/shared and /shared")


def _check_tailnet(tailnet: Draft, sites: tuple[Draft, ...], report: Report) -> None:
    at = tailnet.at("auth_key")
    command = "pulumi config set --path --secret tailrack:tailnet.auth_key"
    if "auth_key" in tailnet.raw and not report.hides(at):
        breaks = "whoever reads the file, or the repository's past, can join the tailnet"
        fix = f"revoke this key, make another and give it to: {command}"
        report.add(at, "[secret] is plain text in the config", breaks, fix)
    only_hosts = bool(sites) and all(site.text("kind") == "hosts" for site in sites)
    if only_hosts and "auth_key" not in tailnet.raw and "control_url" not in tailnet.raw:
        fix = f"run: {command} (or set control_url, for a control server of your own)"
        report.add(at, "missing", "no node could join Tailscale's tailnet", fix)


def _check_sizes(validation: Draft, report: Report) -> None:
    def number(key: str) -> int | None:
        value = validation.values.get(key, None if key in validation.raw else Validation.model_fields[key].default)
        return value if isinstance(value, int) else None

    least, most, factor = number("min_bytes"), number("max_bytes"), number("factor")
    if least is None or most is None or factor is None:
        return
    if least % 4:
        at = validation.at("min_bytes")
        what = f"{_size(report, at, least)} is not a multiple of 4 bytes, the size of one number"
        report.add(at, what, "no collective has a message of that size", "write a multiple of 4, such as 64K")
    if least > most:
        at = validation.at("min_bytes" if "min_bytes" in validation.raw else "max_bytes")
        what = f"min_bytes ({_size(report, at, least)}) is above max_bytes ({_size(report, at, most)})"
        report.add(at, what, "there would be no size to measure", "write a smaller min_bytes or a larger max_bytes")
        return
    measured = sizes_between(least, most, factor)
    gate, at = validation.values.get("gate_bytes"), validation.at("gate_bytes")
    if isinstance(gate, int) and gate not in measured:
        listed = ", ".join(_size(report, at, size) for size in measured)
        what = f"{_size(report, at, gate)} is not among the sizes measured ({listed})"
        report.add(at, what, "no result could be held against the floor", "write one of them, or leave it out")


def _size(report: Report, path: str, size: int) -> str:
    return report.value(path, size) if report.hides(path) else format_size(size)
