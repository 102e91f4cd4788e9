"""Sites of kind aws: what EC2 would refuse, or bill for nothing, is refused before anything is made."""

import copy
from pathlib import Path
from typing import Any

import pytest

from stacks.config import ConfigError, StackConfig, parse
from stacks.sites.aws.model import AwsPool, AwsSite
from stacks.sites.aws.offers import image_that_fits, zone_of
from tests.unit.aws_stack import AWS
from tests.unit.configs import HOST_KEY, refused

P5 = {"name": "p", "type": "p5.48xlarge"}
BLOCK = {"market": "capacity-block", "reservation": "cr-0123456789abcdef0"}
OWN = {"vpc": "vpc-0123456789abcdef0", "subnet": "subnet-0123456789abcdef0"}
ID = "ami-0123456789abcdef0"
LEFT_OUT = object()


def read(folder: Path, **change: Any) -> StackConfig:
    """The config with another first site; what is LEFT_OUT is not in it."""
    raw = copy.deepcopy(AWS)
    site = {**raw["sites"][0], **change}
    raw["sites"][0] = {key: value for key, value in site.items() if value is not LEFT_OUT}
    return parse(raw, base_dir=folder, secret_keys=frozenset({"tailnet"}))


def first_pool(config: StackConfig) -> AwsPool:
    site = config.sites[0]
    assert isinstance(site, AwsSite)
    return site.pools[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ssh_from": ["0.0.0.0/0"]}, "opens SSH to a large part of the internet"),
        ({"ssh_from": []}, "ssh_from"),
        ({"ssh_from": ["203.0.113.7"]}, "is not an IPv4 network"),
        ({"zone": LEFT_OUT, "subnet": OWN["subnet"]}, "subnet: is set without vpc"),
        ({"cidr": "100.64.0.0/16"}, "the range of the tailnet"),
        ({"cidr": "8.8.0.0/16"}, "is not a private network"),
        ({"region": "virginia"}, "region"),
        ({"pools": [{"name": "p", "type": "p5"}]}, "type"),
        ({"pools": [{**P5, "image": "windows"}]}, "neither an image's short name"),
        ({"pools": [{**P5, "market": "capacity-block"}]}, "is missing for market capacity-block"),
        ({"pools": [{**P5, "reservation": BLOCK["reservation"]}]}, "you would pay for the reservation and not use it"),
        # Where they stand
        ({"zone": LEFT_OUT, "pools": [{**P5, **BLOCK}]}, "zone: is missing, but pool p uses a reservation"),
        ({**OWN}, "zone: is set, but the subnet has its own zone"),
        ({**OWN, "zone": LEFT_OUT, "cidr": "10.0.0.0/20"}, "cidr: is set, but the subnet has its own cidr"),
        ({"cidr": "10.64.0.0/28", "pools": [{**P5, "count": 11}]}, "11 addresses, but the site has 12 nodes"),
        ({"pools": [{**P5, **BLOCK, "placement_group": "pg-0123456789abcdef0"}]}, "it has its own placement"),
        ({"pools": [{**P5, "placement_group": "near"}]}, "is not auto, none or a pg- id"),
        # What they boot
        ({"pools": [{"name": "g", "type": "g5g.xlarge"}]}, "deep-learning is for amd64, but 'g5g.xlarge' is arm64"),
        ({"pools": [{"name": "m", "type": "m7gd.large"}]}, "ubuntu-24.04 is for amd64"),
        ({"head": {"type": "t4g.large"}}, "head.image: ubuntu-24.04 is for amd64, but 't4g.large' is arm64"),
        ({"pools": [{**P5, "gpu": "h100:8", "image": "ubuntu-24.04"}]}, "ubuntu-24.04 has no NVIDIA driver"),
        ({"pools": [{**P5, "gpu": "h100:8", "image": "debian-13"}]}, "debian-13 has no NVIDIA driver"),
        ({"pools": [{"name": "t", "type": "t3.large", "gpu": "h100:8"}]}, "'t3.large' has no GPU"),
        ({"pools": [{"name": "v", "type": "p3.2xlarge", "gpu": "v100:1"}]}, "'p3.2xlarge' has no GPU"),
        # Addresses
        ({"pools": [{**P5, "efa": True, "count": 6}]}, "elastic_ips: 5 is too low: 6 nodes with EFA in 'us-east-1'"),
        ({"pools": [{**P5, "efa": True, "count": 6}]}, "--quota-code L-0263D0A3 --region us-east-1 --desired-value 6"),
        # Keys
        ({"private_key_file": LEFT_OUT}, "private_key_file: missing"),
        ({"agent": True, "public_key": HOST_KEY}, "agent: is true, but private_key_file is also set"),
        ({"agent": True, "private_key_file": LEFT_OUT}, "public_key: is missing, but the key is in an agent"),
        ({"public_key": HOST_KEY}, "public_key: is set, but agent is not true"),
        ({"agent": True, "private_key_file": LEFT_OUT, "public_key": "key.pub"}, "is not a public key"),
    ],
)  # fmt: skip
def test_the_config_rejects_impossible_values_by_key(change: dict[str, Any], said: str, key_folder: Path) -> None:
    error = refused(read, key_folder, **change)
    assert any("sites[0]" in str(problem) and said in str(problem) for problem in error.problems), error


def test_elastic_ips_are_counted_over_all_sites_of_a_region(key_folder: Path) -> None:
    raw = copy.deepcopy(AWS)
    for site, name in zip(raw["sites"], ("p", "q"), strict=True):
        site |= {"region": "us-east-1", "pools": [{**P5, "name": name, "efa": True, "count": 3}]}
    with pytest.raises(ConfigError, match="5 is too low: 6 nodes with EFA in 'us-east-1'"):
        parse(raw, base_dir=key_folder, secret_keys=frozenset({"tailnet"}))


@pytest.mark.parametrize(
    ("kind", "image"), [("p5.48xlarge", "deep-learning"), ("g6.xlarge", "deep-learning"), ("t3.large", "ubuntu-24.04")]
)
def test_a_gpu_types_image_has_the_driver_unless_another_is_named(kind: str, image: str, key_folder: Path) -> None:
    assert first_pool(read(key_folder, pools=[{"name": "p", "type": kind}])).image == image


@pytest.mark.parametrize(
    ("pool", "grouped"),
    [
        ({"type": "g6.xlarge"}, True),
        ({"type": "g6.xlarge", "market": "spot"}, True),
        ({"type": "g6.xlarge", "count": 1}, False),
        ({"type": "t3.large"}, False),
        ({"type": "m7i-flex.large"}, False),
        ({"type": "g6.xlarge", "placement_group": "none"}, False),
        ({"type": "g6.xlarge", "placement_group": "pg-0123456789abcdef0"}, False),
        ({"type": "g6.xlarge", "market": "reservation", "reservation": "cr-0123456789abcdef0"}, False),
        ({"type": "p5.48xlarge", **BLOCK}, False),
    ],
)
def test_nodes_are_placed_in_a_group_where_possible(pool: dict[str, Any], grouped: bool, key_folder: Path) -> None:
    assert first_pool(read(key_folder, pools=[{"name": "p", "count": 2, **pool}])).grouped is grouped


SOLD = {
    "p5.48xlarge": ["us-east-1c", "us-east-1b", "us-east-1-bos-1a"],
    "g6.xlarge": ["us-east-1a", "us-east-1c", "us-east-1b"],
}


@pytest.mark.parametrize(
    ("letter", "offers", "said"),
    [
        ("a", SOLD, "us-east-1a does not sell all instance types .*p5.48xlarge in us-east-1b, us-east-1c"),
        (None, {**SOLD, "t3.large": ["us-east-1d"]}, "no zone of us-east-1 sells all .*t3.large in us-east-1d"),
        (None, {"p5.48xlarge": []}, "no zone of us-east-1 sells all .*p5.48xlarge in none"),
    ],
)
def test_a_subnet_is_in_a_zone_that_sells_all_types(letter: str | None, offers: Any, said: str) -> None:
    assert zone_of("us-east-1", None, SOLD) == "us-east-1b"
    assert zone_of("us-east-1", "c", SOLD) == "us-east-1c"
    with pytest.raises(ValueError, match=said):
        zone_of("us-east-1", letter, offers)


def image(*disks: tuple[str, str | None]) -> dict[str, Any]:
    mappings = [{"device_name": name, "ebs": {"volume_size": size} if size else {}} for name, size in disks]
    return {"id": ID, "root_device_name": "/dev/sda1", "block_device_mappings": mappings}


def test_a_disk_that_is_smaller_than_its_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"disk_gb is 60, but the image deep-learning needs 75 GB.*write 75 or more"):
        image_that_fits("deep-learning", 60, image(("/dev/sda1", "75"), ("/dev/sdb", None)))
