"""Images by a word: where AWS says which id is the newest, and whom they let in."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Image:
    """parameter: of Systems Manager, whose value is the newest id in the region; user: with password-less sudo."""

    parameter: str
    user: str


_SSM = "/aws/service"
IMAGES = {
    # wiki.ubuntu.com, "Find AMI IDs with Systems Manager"
    "ubuntu-24.04": Image(f"{_SSM}/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id", "ubuntu"),
    # wiki.debian.org/Cloud/AmazonEC2Image
    "debian-13": Image(f"{_SSM}/debian/release/13/latest/amd64", "admin"),
    # docs.aws.amazon.com/dlami, find-dlami-id: driver, CUDA, EFA, aws-ofi-nccl, container toolkit
    "deep-learning": Image(
        f"{_SSM}/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id", "ubuntu"
    ),
}
IMAGE_ID = re.compile(r"ami-[0-9a-f]{8,17}")
