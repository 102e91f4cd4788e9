"""Sites of kind aws: all that would be made, against mocks; layouts of EFA; user data; what the config refuses.

No account was at hand: what EC2 itself says to it is not known.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from stacks.config import ConfigError, parse
from stacks.sites.aws.efa import interfaces
from stacks.sites.aws.new_host_key import main as new_host_key
from stacks.sites.aws.user_data import MOST_BYTES, user_data
from tests.unit.configs import AUTH_KEY, FIRST_KEY, RawConfig
from tests.unit.recorded import Build

PACKAGES = Path(__file__).parents[3] / ".tailrack" / "packages"
if PACKAGES.is_dir():
    sys.path.append(str(PACKAGES))

AWS: RawConfig = {
    "cluster": {"name": "prod"},
    "head": {"name": "door", "site": "east"},
    "sites": [
        {
            "name": "east",
            "kind": "aws",
            "region": "us-east-1",
            "zone": "b",
            "ssh_from": ["203.0.113.7/32"],
            "private_key_file": "key",
            "tags": {"team": "vision"},
            "pools": [
                {
                    "name": "p", "count": 2, "type": "p5.48xlarge", "image": "deep-learning", "efa": True,
                    "market": "capacity-block", "reservation": "cr-0123456789abcdef0", "gpu": "h100:8",
                },
                {"name": "s", "type": "g6.xlarge", "market": "spot", "disk_gb": 200, "image": "ami-0123456789abcdef0"},
            ],
        },
        {
            "name": "west",
            "kind": "aws",
            "region": "us-west-2",
            "ssh_from": ["203.0.113.7/32"],
            "private_key_file": "key",
            "vpc": "vpc-0123456789abcdef0",
            "subnet": "subnet-0123456789abcdef0",
            "pools": [{"name": "w", "count": 2, "type": "g6.12xlarge", "image": "debian-13"}],
        },
    ],
    "users": [{"name": "ada", "uid": 6001}],
    "tailnet": {"auth_key": AUTH_KEY},
}  # fmt: skip
ANSWERS = {
    "aws:ssm/getParameter:getParameter": {"value": "ami-0fedcba9876543210"},
    "aws:ec2/getInstanceType:getInstanceType": {"efaMaximumInterfaces": 32},
    **{f"{name}-instance": {"publicIp": f"198.51.100.{n}"} for n, name in enumerate(("door", "s1", "w1", "w2"), 1)},
    "east-p-interfaces": {"latestVersion": 3},
    **{f"{name}-address": {"publicIp": f"198.51.100.{n}"} for n, name in enumerate(("p1", "p2"), 11)},
}


@pytest.fixture
def package() -> None:
    pytest.importorskip(
        "pulumi_aws", reason="AWS IS NOT TESTED: pulumi-aws is not in .tailrack/packages; make test-unit"
    )


@pytest.fixture
def stack(package: None, build: Build) -> Any:
    return build(AWS, answers=ANSWERS)


def made(stack: Any, name: str) -> dict[str, Any]:
    (found,) = (one for one in stack.resources if one.name == name and one.type.startswith("aws:"))
    return dict(found.inputs)


def test_all_that_would_be_made_is_as_it_was_reviewed(stack: Any, snapshot: SnapshotAssertion) -> None:
    told = {}
    for one in stack.resources:
        if one.type.startswith("aws:"):
            told[f"{one.type} {one.name}"] = {**one.inputs, **({"userData": "..."} if "userData" in one.inputs else {})}
    assert json.dumps(told, indent=1, sort_keys=True) == snapshot


def test_ssh_is_let_in_from_named_networks_alone_and_nothing_else_but_wireguard(stack: Any) -> None:
    rules = made(stack, "east-group")["ingress"]
    assert [(rule.get("cidrBlocks"), rule["protocol"], rule["toPort"], rule.get("self")) for rule in rules] == [
        (["203.0.113.7/32"], "tcp", 22, None),
        (["0.0.0.0/0"], "udp", 41641, None),
        (None, "-1", 0, True),
    ]


def test_every_instance_asks_for_a_session_and_is_reached_over_a_key_of_its_own(stack: Any) -> None:
    for name in ("door", "p1", "s1", "w2"):
        options = made(stack, f"{name}-instance")["metadataOptions"]
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)
        first, later = (stack[f"{name}-{step}"].inputs["connection"]["hostKey"] for step in ("host-key", "gate"))
        assert first == "ecdsa-sha2-nistp256 first-public"
        assert later.startswith("ssh-ed25519 ")


def test_an_instance_that_comes_in_the_place_of_a_lost_one_gets_its_host_key_anew(stack: Any) -> None:
    assert stack["s1-host-key"].inputs["triggers"] == ["s1-instance-id"]


def test_the_first_key_is_seen_nowhere_in_plain_state(stack: Any) -> None:
    assert FIRST_KEY in made(stack, "door-instance")["userData"]
    assert not [one.name for one in stack.resources if FIRST_KEY in one.in_plain_state]


def test_the_instances_of_a_pool_with_efa_share_a_template_and_have_addresses_that_stay(stack: Any) -> None:
    assert len(made(stack, "east-p-interfaces")["networkInterfaces"]) == 33
    templates = [made(stack, f"{name}-instance")["launchTemplate"] for name in ("p1", "p2")]
    assert templates == [{"id": "east-p-interfaces-id", "version": "3"}] * 2
    assert "subnetId" not in made(stack, "p1-instance")
    assert stack["p1-gate"].inputs["connection"]["host"] == "198.51.100.11"
    assert "p1-address" in stack.names
    assert "s1-address" not in stack.names


@pytest.mark.parametrize(
    ("kind", "most", "expected"),
    [
        ("g6.8xlarge", 1, [(0, 0, None), (0, 1, "efa-only")]),
        ("p4d.24xlarge", 4, [(0, 0, None), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in (1, 2, 3))]),
        ("p6-b300.48xlarge", 2, [(0, 0, None), (1, 0, "efa-only"), (2, 0, "efa-only")]),
    ],
)
def test_efa_interfaces_are_laid_out_as_aws_says(kind: str, most: int, expected: list[tuple[Any, ...]]) -> None:
    found = interfaces(kind, most, "subnet", "group")
    assert [(one["network_card_index"], one["device_index"], one.get("interface_type")) for one in found] == expected


@pytest.mark.usefixtures("package")
def test_the_fabric_of_a_site_is_that_of_its_instances(build: Build) -> None:
    raw = copy.deepcopy(AWS)
    raw["sites"][0]["fabric"] = "tailnet"
    assert build(raw, answers=ANSWERS).header("door-join")["NODE_FABRIC"] == "tailnet"


def test_a_type_without_efa_is_refused() -> None:
    with pytest.raises(ValueError, match=r"instances of type t3\.large have no EFA"):
        interfaces("t3.large", 0, "subnet", "group")


def test_user_data_fits_and_is_what_cloud_init_reads(capsys: pytest.CaptureFixture[str]) -> None:
    new_host_key()
    key = json.loads(capsys.readouterr().out)
    text = user_data("ssh-ed25519 AAAA me", key["private"], key["public"])
    first, _, body = text.partition("\n")
    assert first == "#cloud-config"
    assert json.loads(body)["ssh_keys"]["ecdsa_private"] == key["private"]
    assert key["public"].startswith("ecdsa-sha2-nistp256 ")
    assert len(text) < MOST_BYTES / 4
    with pytest.raises(ValueError, match="EC2 takes 16384"):
        user_data("x" * MOST_BYTES, "", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ssh_from": ["0.0.0.0/0"]}, "opens SSH to a great part of the world"),
        ({"ssh_from": []}, "ssh_from"),
        ({"ssh_from": ["203.0.113.7"]}, "is not an IPv4 network"),
        ({"subnet": "subnet-0123456789abcdef0"}, "there is no vpc with it"),
        ({"cidr": "100.64.0.0/16"}, "the tailnet's own range"),
        ({"cidr": "8.8.0.0/16"}, "is not a private network"),
        ({"region": "virginia"}, "region"),
        ({"pools": [{"name": "p", "type": "p5"}]}, "type"),
        ({"pools": [{"name": "p", "type": "p5.48xlarge", "image": "windows"}]}, "neither the word of an image"),
        ({"pools": [{"name": "p", "type": "p5.48xlarge", "market": "capacity-block"}]}, "without a reservation"),
        (
            {"pools": [{"name": "p", "type": "p5.48xlarge", "reservation": "cr-0123456789abcdef0"}]},
            "the reservation would be paid and not used",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(change: dict[str, Any], said: str, key_folder: Path) -> None:
    raw = copy.deepcopy(AWS)
    raw["sites"][0] |= change
    with pytest.raises(ConfigError) as refused:
        parse(raw, base_dir=key_folder, secret_keys=frozenset({"tailnet"}))
    assert any("sites[0]" in str(problem) and said in str(problem) for problem in refused.value.problems)


def test_the_package_is_imported_where_a_stack_has_such_a_site_alone(build: Build, lab_config: RawConfig) -> None:
    before = set(sys.modules)
    build(lab_config, again=True)
    assert not {"pulumi_aws", "stacks.sites.aws.machines"} & (set(sys.modules) - before)
