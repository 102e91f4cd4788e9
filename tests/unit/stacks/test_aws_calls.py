"""The resources of the reviewed snapshot as calls of EC2's API, taken and described back by a test server (moto).

It stands in the place of an account: it knows EC2's calls, ids and what belongs to what, and has no machines.
"""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.aws_stack import ANSWERS, AWS, require_package
from tests.unit.ec2_calls import Ec2
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
        for who in (*(one["CidrIp"] for one in rule["IpRanges"]), *(one["GroupId"] for one in rule["UserIdGroupPairs"]))
    }
    assert let_in == {
        ("tcp", 22, "203.0.113.7/32"),
        ("udp", 41641, "0.0.0.0/0"),
        ("-1", None, ec2.made["east-group-id"]),
    }
