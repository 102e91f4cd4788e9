"""The resources of the reviewed snapshot as calls of EC2's API, taken and described back by a test server (moto).

It stands in the place of an account: it knows EC2's calls, ids and what belongs to what, and has no machines.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.aws_stack import ANSWERS, AWS, require_package
from tests.unit.ec2_calls import Ec2, Refused
from tests.unit.recorded import Build, Recorded, Registered

pytestmark = pytest.mark.sdk

EAST, WEST = "us-east-1", "us-west-2"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The test server's address: a port of its own on this machine."""
    moto: Any = pytest.importorskip("moto.server", reason="AWS'S CALLS ARE NOT TESTED: moto is missing; make setup-dev")
    served = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    yield f"http://{host}:{port}"
    served.stop()


@pytest.fixture(scope="module")
def stack(build: Build) -> Recorded:
    require_package()
    return build(AWS, answers=ANSWERS)


@pytest.fixture(scope="module")
def ec2(server: str, stack: Recorded) -> Ec2:
    """All of the snapshot, made at the server."""
    theirs = Ec2(server, {})
    vpc = theirs.call(WEST, "create_vpc", CidrBlock="10.1.0.0/20")["Vpc"]["VpcId"]
    subnet = theirs.call(WEST, "create_subnet", VpcId=vpc, CidrBlock="10.1.0.0/20")["Subnet"]["SubnetId"]
    made = Ec2(server, {"vpc-0123456789abcdef0": vpc, "subnet-0123456789abcdef0": subnet})
    for one in stack.resources:
        if one.type.startswith("aws:"):
            made.make(one)
    return made


def recorded(stack: Recorded, name: str) -> Registered:
    (found,) = (one for one in stack.resources if one.name == name and one.type.startswith("aws:"))
    return found


def instance(ec2: Ec2, name: str, region: str = EAST) -> dict[str, Any]:
    told = ec2.call(region, "describe_instances", InstanceIds=[ec2.made[f"{name}-instance-id"]])
    found: dict[str, Any] = told["Reservations"][0]["Instances"][0]
    return found


def tags(of: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in of["Tags"]}


def test_every_call_is_taken_and_every_instance_is_as_it_was_asked_for(ec2: Ec2, stack: Recorded) -> None:
    for name, region in (("door", EAST), ("p1", EAST), ("p2", EAST), ("s1", EAST), ("w1", WEST), ("w2", WEST)):
        asked, there = recorded(stack, f"{name}-instance").inputs, instance(ec2, name, region)
        assert (there["ImageId"], there["InstanceType"]) == (asked["ami"], asked["instanceType"])
        assert tags(there).items() >= asked["tags"].items()
        options = {key: there["MetadataOptions"][key] for key in ("HttpTokens", "HttpPutResponseHopLimit")}
        assert options == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
        told = ec2.call(region, "describe_instance_attribute", InstanceId=there["InstanceId"], Attribute="userData")
        assert base64.b64decode(told["UserData"]["Value"]).decode() == asked["userData"]
        (disk,) = (disk["Ebs"]["VolumeId"] for disk in there["BlockDeviceMappings"])
        (volume,) = ec2.call(region, "describe_volumes", VolumeIds=[disk])["Volumes"]
        wanted = asked["rootBlockDevice"]
        assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (wanted["volumeSize"], "gp3", True)
        assert tags(volume) == asked["volumeTags"]


def test_the_instances_of_a_site_are_in_its_subnet_and_group(ec2: Ec2) -> None:
    for name in ("door", "s1", "p1"):
        there = instance(ec2, name)
        assert there["SubnetId"] == ec2.made["east-subnet-id"]
        assert there["Placement"]["AvailabilityZone"] == "us-east-1b"
        for face in there["NetworkInterfaces"]:
            assert [group["GroupId"] for group in face["Groups"]] == [ec2.made["east-group-id"]]


def test_an_elastic_ip_is_that_of_the_primary_of_several_interfaces(ec2: Ec2) -> None:
    for name in ("p1", "p2"):
        faces = instance(ec2, name)["NetworkInterfaces"]
        assert len(faces) > 1  # of 33: moto keeps one for each device index
        (address,) = ec2.call(EAST, "describe_addresses", AllocationIds=[ec2.made[f"{name}-address-id"]])["Addresses"]
        primary = next(face for face in faces if face["NetworkInterfaceId"] == address["NetworkInterfaceId"])
        assert primary["Attachment"]["DeviceIndex"] == 0
        assert primary["PrivateIpAddress"] == instance(ec2, name)["PrivateIpAddress"]


def test_a_launch_template_is_described_with_the_interfaces_of_each_card(ec2: Ec2, stack: Recorded) -> None:
    template = {"LaunchTemplateId": ec2.made["east-p-interfaces-id"]}
    (version,) = ec2.call(EAST, "describe_launch_template_versions", **template)["LaunchTemplateVersions"]
    faces = version["LaunchTemplateData"]["NetworkInterfaces"]
    cards = [(face["NetworkCardIndex"], face["DeviceIndex"], face.get("InterfaceType")) for face in faces]
    asked = recorded(stack, "east-p-interfaces").inputs["networkInterfaces"]
    assert cards == [(one["networkCardIndex"], one["deviceIndex"], one.get("interfaceType")) for one in asked]
    assert str(version["VersionNumber"]) == recorded(stack, "p1-instance").inputs["launchTemplate"]["version"]


def test_the_new_network_reaches_the_internet_and_admits_only_reviewed_traffic(ec2: Ec2) -> None:
    (table,) = ec2.call(EAST, "describe_route_tables", RouteTableIds=[ec2.made["east-routes-id"]])["RouteTables"]
    ways = {route["DestinationCidrBlock"]: route.get("GatewayId") for route in table["Routes"]}
    assert ways["0.0.0.0/0"] == ec2.made["east-gateway-id"]
    assert [one["SubnetId"] for one in table["Associations"] if "SubnetId" in one] == [ec2.made["east-subnet-id"]]
    (subnet,) = ec2.call(EAST, "describe_subnets", SubnetIds=[ec2.made["east-subnet-id"]])["Subnets"]
    assert (subnet["CidrBlock"], subnet["MapPublicIpOnLaunch"]) == ("10.64.0.0/20", True)
    (group,) = ec2.call(EAST, "describe_security_groups", GroupIds=[ec2.made["east-group-id"]])["SecurityGroups"]
    let_in = {
        (rule["IpProtocol"], rule.get("ToPort"), who)
        for rule in group["IpPermissions"]
        for who in (
            *(one["CidrIp"] for one in rule["IpRanges"]),
            *(one["GroupId"] for one in rule["UserIdGroupPairs"]),
        )
    }
    assert let_in == {
        ("tcp", 22, "203.0.113.7/32"),
        ("udp", 41641, "0.0.0.0/0"),
        ("-1", None, ec2.made["east-group-id"]),
    }


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("p1-address", {"networkInterface": None, "instance": "p1-instance-id"}, "multiple interfaces"),
        ("s1-instance", {"instanceMarketOptions": {"marketType": "capacityblock"}}, "has no 'capacityblock'"),
        ("w1-instance", {"metadataOptions": {"httpTokens": "yes"}}, "HttpTokens has no 'yes'"),
        ("west-w-group", {"strategy": "near"}, "Strategy has no 'near'"),
        ("door-instance", {"rootBlockDevice": {"size": 100}}, "Ebs has no Size"),
    ],
)
def test_the_fake_rejects_names_that_ec2_does_not_know(
    ec2: Ec2, stack: Recorded, name: str, change: dict[str, Any], said: str
) -> None:
    one = recorded(stack, name)
    inputs = {key: value for key, value in {**one.inputs, **change}.items() if value is not None}
    with pytest.raises(Refused, match=said):
        ec2.make(replace(one, inputs=inputs))
