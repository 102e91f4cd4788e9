"""Checks of aws sites: markets and reservations, networks, images, addresses, and at least one node."""

from collections import defaultdict
from collections.abc import Sequence

from components.settings.cluster import Head
from components.settings.problems import Report, show_name
from components.settings.rules import check_partner
from stacks.sites.aws.images import IMAGES, image_for
from stacks.sites.aws.instance_types import has_nvidia_gpus, is_arm
from stacks.sites.aws.model import AwsHead, AwsPool, AwsSite, nodes
from stacks.sites.login_key import check_login_key
from stacks.sites.pools import check_not_empty

RESERVED = ("capacity-block", "reservation")
AWS_OWN = 5  # addresses that AWS reserves in each subnet
RAISE_QUOTA = (  # EC2-VPC Elastic IPs
    "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-0263D0A3 "
    "--region {region} --desired-value {count}"
)


def check(sites: Sequence[AwsSite], head: Head, report: Report) -> None:
    """Report settings that EC2 would reject, or that cost money without use."""
    for site in sites:
        check_not_empty(site, site.pools, head, report)
        check_login_key(site, "instances", report)
        _check_network(site, len(nodes(site, head)), report)
        for pool in site.pools:
            _check_market(pool, report)
            _check_reserved_zone(site, pool, report)
            _check_placement(pool, report)
        shapes: list[AwsPool | AwsHead] = [*site.pools, *([site.head] if head.site == site.name else [])]
        for shape in shapes:
            _check_image(shape, report)
    _check_elastic_ips(sites, report)


def _check_network(site: AwsSite, needed: int, report: Report) -> None:
    given = site.model_fields_set
    for name, partner in (("subnet", "vpc"), ("vpc", "subnet")):
        check_partner(site, name, partner, "instances and their rules would be in two networks", report)
    if site.subnet is not None:
        for key in sorted({"zone", "cidr"} & given):
            problem, fix = f"is set, but the subnet has its own {key}", f"remove {key}, or remove subnet and vpc"
            report.add((site, key), problem, "it would have no effect", fix)
    elif needed > (most := site.cidr.num_addresses - AWS_OWN):
        problem = f"has {most} addresses, but the site has {needed} nodes"
        fix = "write a larger network, such as 10.64.0.0/20"
        report.bad((site, "cidr"), problem, "EC2 could not create the last ones", fix)


def _check_market(pool: AwsPool, report: Report) -> None:
    path = report.at(pool, "reservation")
    if pool.market in RESERVED and pool.reservation is None:
        problem = f"is missing for market {pool.market}"
        report.add(path, problem, "EC2 would not know which one", "write the id, cr-...")
    if pool.reservation is not None and pool.market not in RESERVED:
        problem = f"is set, but market is {report.value(path, pool.market)}"
        fix = "write market: reservation or capacity-block, or remove the reservation"
        report.add(path, problem, "you would pay for the reservation and not use it", fix)


def _check_reserved_zone(site: AwsSite, pool: AwsPool, report: Report) -> None:
    if pool.market in RESERVED and site.zone is None and site.subnet is None:
        problem = f"is missing, but pool {show_name(pool.name)} uses a reservation"
        breaks = "a reservation is in one zone, and the nodes might be in another"
        report.add((site, "zone"), problem, breaks, "write the letter of the reservation's zone")


def _check_placement(pool: AwsPool, report: Report) -> None:
    if pool.market == "capacity-block" and pool.placement_group.startswith("pg-"):
        problem = "a placement group is set for a capacity block"
        breaks = "a capacity block has its own placement, and EC2 rejects another"
        report.add((pool, "placement_group"), problem, breaks, "remove it")


def _check_image(shape: AwsPool | AwsHead, report: Report) -> None:
    """Report an image that the instance type cannot boot, or that has no driver for the expected GPUs."""
    kind, name = shape.type, shape.image or image_for(shape.type)
    image, shown = IMAGES.get(name), report.value(report.at(shape, "type"), kind)
    if image and is_arm(kind):
        problem = f"{name} is for amd64, but {shown} is arm64"
        fix = "write the id of an image for arm64, or another type"
        report.add((shape, "image"), problem, "the instance would not boot", fix)
    if isinstance(shape, AwsHead) or shape.gpu is None:
        return
    breaks = "the check step would fail after machines have started to cost money"
    if not has_nvidia_gpus(kind) and image:
        problem = f"{shown} has no GPU that this image supports"
        fix = "write a type with NVIDIA GPUs, or leave gpu out; for other GPUs, write an image id with their driver"
        report.add((shape, "gpu"), problem, breaks, fix)
    elif image and not image.driver:
        problem = f"{name} has no NVIDIA driver, but gpu expects GPUs"
        fix = "leave image out (deep-learning), or write the id of an image with the driver"
        report.add((shape, "image"), problem, breaks, fix)


def _check_elastic_ips(sites: Sequence[AwsSite], report: Report) -> None:
    """Report more nodes with EFA than the region has elastic IPs for."""
    regions = defaultdict[str, list[AwsSite]](list)
    for site in sites:
        regions[site.region].append(site)
    for region, region_sites in regions.items():
        needed = sum(pool.count for site in region_sites for pool in site.pools if pool.efa)
        most = max(site.elastic_ips for site in region_sites)
        if needed > most:
            path = report.at(region_sites[0], "elastic_ips")
            place = report.value(path, region)
            problem = f"{report.value(path, most)} is too low: {needed} nodes with EFA in {place} need one each"
            breaks = "EC2 would reject the rest after their machines have started to cost money"
            fix = f"run: {RAISE_QUOTA.format(region=region, count=needed)}; when AWS grants it, write {needed}"
            report.add(path, problem, breaks, fix)
