"""Checks of aws sites: markets and reservations, networks, images, addresses, and at least one node."""

from collections import defaultdict
from collections.abc import Sequence
from ipaddress import IPv4Network

from components.settings.draft import Draft
from components.settings.problems import Report, show_name
from stacks.sites.aws.images import IMAGES, image_for
from stacks.sites.aws.instance_types import has_nvidia_gpus, is_arm
from stacks.sites.hosts.checks import check_one_key
from stacks.sites.login_key import check_public_key
from stacks.sites.pools import check_not_empty

RESERVED = ("capacity-block", "reservation")
AWS_OWN = 5  # addresses that AWS reserves in each subnet
RAISE_QUOTA = (  # EC2-VPC Elastic IPs
    "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-0263D0A3 "
    "--region {region} --desired-value {count}"
)


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report settings that EC2 would reject, or that cost money without use."""
    for site in sites:
        check_not_empty(site, head, report)
        check_one_key(site, report)
        check_public_key(site, "instances", report)
        head_here = head.text("site") is not None and head.text("site") == site.text("name")
        _check_network(site, head_here, report)
        for pool in site.items("pools"):
            _check_market(pool, report)
            _check_reserved_zone(site, pool, report)
            _check_placement(pool, report)
        for shape in (*site.items("pools"), *([site.section("head")] if head_here else [])):
            _check_image(shape, report)
    _check_elastic_ips(sites, report)


def _check_network(site: Draft, head_here: bool, report: Report) -> None:
    for name, partner in (("subnet", "vpc"), ("vpc", "subnet")):
        if name in site.raw and partner not in site.raw:
            breaks = "instances and their rules would be in two networks"
            report.add(site.path_of(name), f"is set without {partner}", breaks, f"write {partner}")
    for key in ("zone", "cidr") if "subnet" in site.raw else ():
        if key in site.raw:
            fix = f"remove {key}, or remove subnet and vpc"
            report.add(site.path_of(key), f"is set, but the subnet has its own {key}", "it would have no effect", fix)
    network, path = site.value("cidr"), site.path_of("cidr")
    if "subnet" in site.raw or not isinstance(network, IPv4Network):
        return
    needed = head_here + sum(pool.whole("count") or 1 for pool in site.items("pools"))
    if needed > (most := network.num_addresses - AWS_OWN):
        problem = f"{report.value(path, str(network))} has {most} addresses, but the site has {needed} nodes"
        report.add(path, problem, "EC2 could not create the last ones", "write a larger network, such as 10.64.0.0/20")


def _check_market(pool: Draft, report: Report) -> None:
    market, reserved = pool.text("market"), "reservation" in pool.raw
    if market in RESERVED and not reserved:
        problem = f"is missing for market {market}"
        report.add(pool.path_of("reservation"), problem, "EC2 would not know which one", "write the id, cr-...")
    if reserved and market not in (*RESERVED, None):
        problem = f"is set, but market is {report.value(pool.path_of('market'), market)}"
        fix = "write market: reservation or capacity-block, or remove the reservation"
        report.add(pool.path_of("reservation"), problem, "you would pay for the reservation and not use it", fix)


def _check_reserved_zone(site: Draft, pool: Draft, report: Report) -> None:
    if pool.text("market") in RESERVED and not {"zone", "subnet"} & site.raw.keys():
        problem = f"is missing, but pool {show_name(pool.text('name') or '')} uses a reservation"
        breaks = "a reservation is in one zone, and the nodes might be in another"
        report.add(site.path_of("zone"), problem, breaks, "write the letter of the reservation's zone")


def _check_placement(pool: Draft, report: Report) -> None:
    if pool.text("market") == "capacity-block" and (pool.text("placement_group") or "").startswith("pg-"):
        problem = "a placement group is set for a capacity block"
        breaks = "a capacity block has its own placement, and EC2 rejects another"
        report.add(pool.path_of("placement_group"), problem, breaks, "remove it")


def _check_image(shape: Draft, report: Report) -> None:
    """Report an image that the instance type cannot boot, or that has no driver for the expected GPUs."""
    kind = shape.text("type")
    if kind is None or shape.value("type") is None:
        return
    name = shape.text("image") or image_for(kind)
    image, shown = IMAGES.get(name), report.value(shape.path_of("type"), kind)
    if image and is_arm(kind):
        problem = f"{name} is for amd64, but {shown} is arm64"
        fix = "write the id of an image for arm64, or another type"
        report.add(shape.path_of("image"), problem, "the instance would not boot", fix)
    if shape.raw.get("gpu") is None:
        return
    breaks = "the check step would fail after machines have started to cost money"
    if not has_nvidia_gpus(kind) and image:
        problem = f"{shown} has no GPU that this image supports"
        fix = "write a type with NVIDIA GPUs, or leave gpu out; for other GPUs, write an image id with their driver"
        report.add(shape.path_of("gpu"), problem, breaks, fix)
    elif image and not image.driver:
        problem = f"{name} has no NVIDIA driver, but gpu expects GPUs"
        fix = "leave image out (deep-learning), or write the id of an image with the driver"
        report.add(shape.path_of("image"), problem, breaks, fix)


def _check_elastic_ips(sites: Sequence[Draft], report: Report) -> None:
    """Report more nodes with EFA than the region has elastic IPs for."""
    regions = defaultdict[str, list[Draft]](list)
    for site in sites:
        regions[site.text("region") or ""].append(site)
    for region, region_sites in regions.items():
        pools = [pool for site in region_sites for pool in site.items("pools") if pool.value("efa") is True]
        needed = sum(pool.whole("count") or 1 for pool in pools)
        most = max(site.whole("elastic_ips") or 0 for site in region_sites)
        if needed > most:
            path = region_sites[0].path_of("elastic_ips")
            place = report.value(path, region)
            problem = f"{report.value(path, most)} is too low: {needed} nodes with EFA in {place} need one each"
            breaks = "EC2 would reject the rest after their machines have started to cost money"
            fix = f"run: {RAISE_QUOTA.format(region=region, count=needed)}; when AWS grants it, write {needed}"
            report.add(path, problem, breaks, fix)
