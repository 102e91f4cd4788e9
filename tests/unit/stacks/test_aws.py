"""Sites of kind aws: all that would be made, against mocks; layouts of EFA; user data.

No account was at hand: what EC2 itself says to it is not known. What stands in its place is in test_aws_calls.py.
"""

import copy
import json
from typing import Any

import pulumi
import pytest
from syrupy.assertion import SnapshotAssertion

from stacks.sites.aws.efa import interfaces
from stacks.sites.rented.new_host_key import main as new_host_key
from stacks.sites.rented.user_data import MOST_BYTES, user_data
from tests.unit.aws_stack import ANSWERS, AWS, require_package
from tests.unit.configs import FIRST_KEY, HOST_KEY
from tests.unit.recorded import Build

pytestmark = pytest.mark.sdk


@pytest.fixture
def package() -> None:
    require_package()


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
        first, later = (stack[f"{name}-{step}"].inputs["connection"]["hostKey"] for step in ("host-key", "prepare"))
        assert first == "ecdsa-sha2-nistp256 first-public"
        assert later.startswith("ssh-ed25519 ")


def test_the_first_key_is_seen_nowhere_in_plain_state(stack: Any) -> None:
    assert FIRST_KEY in made(stack, "door-instance")["userData"]
    assert not [one.name for one in stack.resources if FIRST_KEY in one.in_plain_state]


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
def test_answers_of_ec2_that_exclude_the_config_end_the_program_with_a_message(build: Build) -> None:
    raw = copy.deepcopy(AWS)
    raw["sites"][0]["zone"] = "d"
    with pytest.raises(pulumi.RunError, match="us-east-1d does not sell all instance types"):
        build(raw, answers=ANSWERS)


@pytest.mark.usefixtures("package")
def test_with_an_agent_instances_are_given_the_public_key_and_no_private_one_is_anywhere(build: Build) -> None:
    raw = copy.deepcopy(AWS)
    for site in raw["sites"]:
        del site["private_key_file"]
        site |= {"agent": True, "public_key": f"{HOST_KEY} ada@desk"}
    stack = build(raw, answers=ANSWERS)
    assert HOST_KEY in made(stack, "s1-instance")["userData"]
    connections = [stack[name].inputs["connection"] for name in ("s1-host-key", "s1-prepare", "p1-node")]
    assert not [words for words in connections if words.get("privateKey")]


def test_user_data_is_small_enough_and_cloud_init_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    new_host_key()
    key = json.loads(capsys.readouterr().out)
    text = user_data("ssh-ed25519 AAAA me", key["private"], key["public"])
    first, _, body = text.partition("\n")
    assert first == "#cloud-config"
    assert json.loads(body)["ssh_keys"]["ecdsa_private"] == key["private"]
    assert key["public"].startswith("ecdsa-sha2-nistp256 ")
    assert len(text) < MOST_BYTES / 4
    with pytest.raises(ValueError, match="EC2 allows 16384"):
        user_data("x" * MOST_BYTES, "", "")
