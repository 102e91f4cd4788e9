"""What is looked at in aws sites: markets and reservations, networks, images, addresses, and that there is a node."""

from collections import defaultdict
from collections.abc import Sequence
from ipaddress import IPv4Network

from components.settings.draft import Draft
from components.settings.problems import Report, bare
from stacks.sites.aws.images import IMAGES, image_for
from stacks.sites.aws.instance_types import has_nvidia_gpus, is_arm
from stacks.sites.hosts.checks import check_one_key
from stacks.sites.pools import check_not_empty

RESERVED = ("capacity-block", "reservation")
AWS_OWN = 5  # addresses of a subnet that AWS keeps for itself
RAISE_QUOTA = (  # EC2-VPC Elastic IPs
    "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-0263D0A3 "
    "--region {region} --desired-value {count}"
)


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report what EC2 would refuse, or would let be paid for and not be used."""
    for site in sites:
        check_not_empty(site, head, report)
        check_one_key(site, report)
        _check_public_key(site, report)
        head_here = head.text("site") is not None and head.text("site") == site.text("name")
        _check_network(site, head_here, report)
        for pool in site.items("pools"):
            _check_market(pool, report)
            _check_reserved_zone(site, pool, report)
            _check_placement(pool, report)
        for shape in (*site.items("pools"), *([site.section("head")] if head_here else [])):
            _check_image(shape, report)
    _check_elastic_ips(sites, report)


def _check_public_key(site: Draft, report: Report) -> None:
    by_agent, given = site.value("agent") is True, "public_key" in site.raw
    if by_agent and not given:
        what, fix = "missing, and the key is in an agent", "write the line that `ssh-add -L` prints"
        report.add(site.at("public_key"), what, "the instances would let nobody in", fix)
    if given and not by_agent:
        what = "is given, and agent is not true"
        report.add(site.at("public_key"), what, "it may not be the half of the key that logs in", "take it out")


def _check_network(site: Draft, head_here: bool, report: Report) -> None:
    for one, other in (("subnet", "vpc"), ("vpc", "subnet")):
        if one in site.raw and other not in site.raw:
            what = f"there is no {other} with it"
            report.add(site.at(one), what, "instances and their rules would be in two networks", f"write {other}")
    for key in ("zone", "cidr") if "subnet" in site.raw else ():
        if key in site.raw:
            what = "there is a subnet, which has its own"
            report.add(site.at(key), what, "it would be read by nobody", f"take out {key}, or subnet and vpc")
    network, at = site.value("cidr"), site.at("cidr")
    if "subnet" in site.raw or not isinstance(network, IPv4Network):
        return
    needed = head_here + sum(pool.whole("count") or 1 for pool in site.items("pools"))
    if needed > (most := network.num_addresses - AWS_OWN):
        what = f"{report.value(at, str(network))} has {most} addresses for nodes, and the site has {needed} of them"
        report.add(at, what, "the last ones could not be made", "write a larger network, such as 10.64.0.0/20")


def _check_market(pool: Draft, report: Report) -> None:
    market, reserved = pool.text("market"), "reservation" in pool.raw
    if market in RESERVED and not reserved:
        what = f"{market} without a reservation"
        report.add(pool.at("reservation"), what, "EC2 would not know which one", "write the id, cr-...")
    if reserved and market not in (*RESERVED, None):
        what = f"a reservation, and market is {report.value(pool.at('market'), market)}"
        fix = "write market: reservation or capacity-block, or leave the reservation out"
        report.add(pool.at("reservation"), what, "the reservation would be paid and not used", fix)


def _check_reserved_zone(site: Draft, pool: Draft, report: Report) -> None:
    if pool.text("market") in RESERVED and not {"zone", "subnet"} & site.raw.keys():
        what = f"missing, and pool {bare(pool.text('name') or '')} is taken from a reservation"
        breaks = "a reservation is in one zone, and the nodes might stand in another"
        report.add(site.at("zone"), what, breaks, "write the letter of the zone that it is in")


def _check_placement(pool: Draft, report: Report) -> None:
    if pool.text("market") == "capacity-block" and (pool.text("placement_group") or "").startswith("pg-"):
        what = "a placement group beside a capacity block"
        breaks = "a block has a placement of its own, and EC2 refuses another"
        report.add(pool.at("placement_group"), what, breaks, "take it out")


def _check_image(shape: Draft, report: Report) -> None:
    """Report an image that its type cannot boot, or in which a promised GPU has no driver."""
    kind = shape.text("type")
    if kind is None or shape.value("type") is None:
        return
    word = shape.text("image") or image_for(kind)
    image, shown = IMAGES.get(word), report.value(shape.at("type"), kind)
    if image and is_arm(kind):
        what = f"{word} is for amd64, and {shown} is arm64"
        report.add(shape.at("image"), what, "it would not boot", "write the id of an image for arm64, or another type")
    if shape.raw.get("gpu") is None:
        return
    if not has_nvidia_gpus(kind) and image:
        what = f"{shown} has no GPU that an image by a word drives"
        fix = "write a type that has them, or leave gpu out; for others the id of an image with their driver"
        report.add(shape.at("gpu"), what, "the gate would stop machines that are paid for", fix)
    elif image and not image.driver:
        what = f"{word} has no NVIDIA driver, and gpu promises GPUs"
        fix = "leave image out (deep-learning), or write the id of an image that has the driver"
        report.add(shape.at("image"), what, "the gate would stop machines that are paid for", fix)


def _check_elastic_ips(sites: Sequence[Draft], report: Report) -> None:
    """Report nodes with EFA that are more than the region has elastic IPs for."""
    regions = defaultdict[str, list[Draft]](list)
    for site in sites:
        regions[site.text("region") or ""].append(site)
    for region, there in regions.items():
        pools = [pool for site in there for pool in site.items("pools") if pool.value("efa") is True]
        needed = sum(pool.whole("count") or 1 for pool in pools)
        most = max(site.whole("elastic_ips") or 0 for site in there)
        if needed > most:
            at = there[0].at("elastic_ips")
            what = f"{report.value(at, most)}, and {needed} nodes with EFA in {report.value(at, region)} need one each"
            breaks = "EC2 would refuse the rest of them while their machines are paid"
            fix = f"run: {RAISE_QUOTA.format(region=region, count=needed)}; once it is granted, write {needed}"
            report.add(at, what, breaks, fix)
