"""Checks of EC2's answers about a region against the config, before anything is created. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any


def zone_of(region: str, letter: str | None, offers: Mapping[str, Collection[str]]) -> str:
    """Return the configured zone, or the first that sells all types. Raises ValueError without such a zone.

    offers   places that sell an instance type, by type
    """
    zones = {kind: {zone for zone in sold if re.fullmatch(rf"{region}[a-z]", zone)} for kind, sold in offers.items()}
    common = sorted(set.intersection(*zones.values()))
    zone = region + letter if letter else next(iter(common), None)
    if zone in common:
        return str(zone)
    available = "; ".join(f"{kind} in {', '.join(sorted(sold)) or 'none'}" for kind, sold in sorted(zones.items()))
    problem = f"{zone} does not sell" if zone else f"no zone of {region} sells"
    raise ValueError(
        f"{problem} all instance types of one site, and a site is in one zone; nothing was created (available: "
        f"{available}); write a zone that has them all, other types, or two sites"
    )


def image_that_fits(word: str, disk_gb: int, image: Mapping[str, Any]) -> str:
    """Return the id of an image. Raises ValueError if the disk is smaller than the image.

    image   id, root_device_name, and block_device_mappings, as in DescribeImages
    """
    disks: Sequence[Mapping[str, Any]] = image["block_device_mappings"]
    roots = [disk["ebs"] for disk in disks if disk["device_name"] == image["root_device_name"]]
    least = max((int(root.get("volume_size") or 0) for root in roots), default=0)
    if disk_gb < least:
        raise ValueError(
            f"disk_gb is {disk_gb}, but the image {word} needs {least} GB, so EC2 would reject it; write {least} or "
            "more"
        )
    return str(image["id"])
