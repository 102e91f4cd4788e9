"""Images by short name: the source of their newest id, and their log-in account."""

import re
from dataclasses import dataclass

from stacks.sites.aws.instance_types import has_nvidia_gpus


@dataclass(frozen=True)
class Image:
    """An image for amd64.

    parameter   name in Systems Manager; its value is the newest id in the region
    user        the log-in account, with password-less sudo
    driver      whether the image contains NVIDIA's driver
    """

    parameter: str
    user: str
    driver: bool = False


_SSM = "/aws/service"
IMAGES = {
    # wiki.ubuntu.com, "Find AMI IDs with Systems Manager"
    "ubuntu-24.04": Image(f"{_SSM}/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id", "ubuntu"),
    # wiki.debian.org/Cloud/AmazonEC2Image
    "debian-13": Image(f"{_SSM}/debian/release/13/latest/amd64", "admin"),
    # docs.aws.amazon.com/dlami, find-dlami-id: driver, CUDA, EFA, aws-ofi-nccl, container toolkit
    "deep-learning": Image(
        f"{_SSM}/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id", "ubuntu", driver=True
    ),
}
IMAGE_ID = re.compile(r"ami-[0-9a-f]{8,17}")


def image_for(instance_type: str) -> str:
    """Return the default image for an instance type."""
    return "deep-learning" if has_nvidia_gpus(instance_type) else "ubuntu-24.04"
