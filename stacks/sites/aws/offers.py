"""What EC2 says of a region before anything is made there, held against what the config wants. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any


def zone_of(region: str, letter: str | None, offers: Mapping[str, Collection[str]]) -> str:
    """Return the zone to stand in: the one that is asked for, else the first that sells all types.

    offers   by instance type the places that sell it

    Raises ValueError where there is no such zone.
    """
    zones = {kind: {zone for zone in sold if re.fullmatch(rf"{region}[a-z]", zone)} for kind, sold in offers.items()}
    common = sorted(set.intersection(*zones.values()))
    wanted = region + letter if letter else next(iter(common), None)
    if wanted in common:
        return str(wanted)
    told = "; ".join(f"{kind} in {', '.join(sorted(sold)) or 'none'}" for kind, sold in sorted(zones.items()))
    what = f"{wanted} does not sell" if wanted else f"no zone of {region} sells"
    raise ValueError(
        f"{what} all instance types of one site, which stands in one zone; nothing was made (sold are {told}); write a "
        "zone that has them all, other types, or two sites"
    )


def image_that_fits(word: str, disk_gb: int, image: Mapping[str, Any]) -> str:
    """Return the id of an image. Raises ValueError where the disk is smaller than the image's own.

    image   id, root_device_name, and block_device_mappings, as DescribeImages has them
    """
    disks: Sequence[Mapping[str, Any]] = image["block_device_mappings"]
    roots = [disk["ebs"] for disk in disks if disk["device_name"] == image["root_device_name"]]
    least = max((int(root.get("volume_size") or 0) for root in roots), default=0)
    if disk_gb < least:
        raise ValueError(
            f"disk_gb is {disk_gb}, and the image {word} has {least} GB: EC2 would refuse it; write {least} or more"
        )
    return str(image["id"])
