"""A stack of two sites of kind aws, whose resources are a reviewed snapshot, and what the mocks answer to it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.configs import AUTH_KEY, RawConfig

PACKAGES = Path(__file__).parents[2] / ".tailrack" / "packages"
if PACKAGES.is_dir():
    sys.path.append(str(PACKAGES))

AWS: RawConfig = {
    "cluster": {"name": "prod"},
    "head": {"name": "door", "site": "east"},
    "sites": [
        {
            "name": "east", "kind": "aws", "region": "us-east-1", "zone": "b", "ssh_from": ["203.0.113.7/32"],
            "private_key_file": "key", "tags": {"team": "vision"},
            "pools": [
                {
                    "name": "p", "count": 2, "type": "p5.48xlarge", "image": "deep-learning", "efa": True,
                    "market": "capacity-block", "reservation": "cr-0123456789abcdef0", "gpu": "h100:8",
                },
                {"name": "s", "type": "g6.xlarge", "market": "spot", "disk_gb": 200, "image": "ami-0123456789abcdef0"},
            ],
        },
        {
            "name": "west", "kind": "aws", "region": "us-west-2", "ssh_from": ["203.0.113.7/32"],
            "private_key_file": "key", "vpc": "vpc-0123456789abcdef0", "subnet": "subnet-0123456789abcdef0",
            "pools": [{"name": "w", "count": 2, "type": "g6.12xlarge", "image": "debian-13"}],
        },
    ],
    "users": [{"name": "ada", "uid": 6001}],
    "tailnet": {"auth_key": AUTH_KEY},
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": {"locations": ["us-east-1c", "us-east-1b"]},
    "aws:ec2/getAmi:getAmi": {
        "id": "ami-0fedcba9876543210",
        "rootDeviceName": "/dev/sda1",
        "blockDeviceMappings": [
            {"deviceName": "/dev/sda1", "ebs": {"volume_size": "75"}, "noDevice": "", "virtualName": ""},
            {"deviceName": "/dev/sdb", "ebs": {}, "noDevice": "", "virtualName": "ephemeral0"},
        ],
    },
    "aws:ssm/getParameter:getParameter": {"value": "ami-0fedcba9876543210"},
    "aws:ec2/getInstanceType:getInstanceType": {"efaMaximumInterfaces": 32},
    **{f"{name}-instance": {"publicIp": f"198.51.100.{n}"} for n, name in enumerate(("door", "s1", "w1", "w2"), 1)},
    **{f"{name}-instance": {"primaryNetworkInterfaceId": f"{name}-primary"} for name in ("p1", "p2")},
    "east-p-interfaces": {"latestVersion": 1},
    "west-w-group": {"name": "west-w-group-0a1b2c3"},
    **{f"{name}-address": {"publicIp": f"198.51.100.{n}"} for n, name in enumerate(("p1", "p2"), 11)},
}


def require_package() -> None:
    """Leave a test out, loudly, where pulumi-aws is not at hand."""
    pytest.importorskip(
        "pulumi_aws", reason="AWS IS NOT TESTED: pulumi-aws is not in .tailrack/packages; make test-sdk"
    )
