"""Resources of EC2 as the calls that the AWS provider makes of them, sent to a server that speaks EC2's API.

What is sent is held against EC2's own model first (boto3 has it): names, types, and the words of enumerations, which no
test server looks at. A call that the server does not know ends there.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from tests.unit.recorded import Registered

# moto has no placement groups.
MODEL_ALONE = {"create_placement_group"}


class Refused(AssertionError):
    """EC2 would refuse a call."""


class Ec2:
    """EC2 at an endpoint. `made` has the ids there by those of the mocks."""

    def __init__(self, endpoint: str, made: Mapping[str, str]) -> None:
        self.endpoint, self.made = endpoint, dict(made)
        self.templates: dict[str, list[dict[str, Any]]] = {}

    def call(self, region: str, operation: str, **words: Any) -> Any:
        """Send one call. Refused where EC2's model has no such word."""
        client = _client(self.endpoint, region)
        model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation])
        _hold_against(model.input_shape, words, operation)
        return {} if operation in MODEL_ALONE else getattr(client, operation)(**words)

    def make(self, resource: Registered) -> None:
        """Make a resource, and know its id from then on."""
        kind = resource.type.rpartition(":")[2]
        told = self._real(resource.inputs)
        made = getattr(self, f"_{kind}")(resource.name, told.pop("region"), told)
        self.made[f"{resource.name}-id"] = made

    def _real(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._real(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._real(item) for item in value]
        if isinstance(value, float):  # as all numbers of a mock
            return int(value)
        return self.made.get(value, value) if isinstance(value, str) else value

    def _Vpc(self, _name: str, region: str, of: dict[str, Any]) -> str:
        vpc = self.call(region, "create_vpc", CidrBlock=of["cidrBlock"], TagSpecifications=_tags("vpc", of))["Vpc"]
        names = {"Value": of["enableDnsHostnames"]}
        self.call(region, "modify_vpc_attribute", VpcId=vpc["VpcId"], EnableDnsHostnames=names)
        return str(vpc["VpcId"])

    def _InternetGateway(self, _name: str, region: str, of: dict[str, Any]) -> str:
        tags = _tags("internet-gateway", of)
        gateway = self.call(region, "create_internet_gateway", TagSpecifications=tags)["InternetGateway"]
        self.call(region, "attach_internet_gateway", VpcId=of["vpcId"], InternetGatewayId=gateway["InternetGatewayId"])
        return str(gateway["InternetGatewayId"])

    def _RouteTable(self, _name: str, region: str, of: dict[str, Any]) -> str:
        tags = _tags("route-table", of)
        table = self.call(region, "create_route_table", VpcId=of["vpcId"], TagSpecifications=tags)["RouteTable"]
        for route in of["routes"]:
            way = {"DestinationCidrBlock": route["cidrBlock"], "GatewayId": route["gatewayId"]}
            self.call(region, "create_route", RouteTableId=table["RouteTableId"], **way)
        return str(table["RouteTableId"])

    def _Subnet(self, _name: str, region: str, of: dict[str, Any]) -> str:
        place = {"VpcId": of["vpcId"], "CidrBlock": of["cidrBlock"], "AvailabilityZone": of["availabilityZone"]}
        subnet = self.call(region, "create_subnet", **place, TagSpecifications=_tags("subnet", of))["Subnet"]
        public = {"Value": of["mapPublicIpOnLaunch"]}
        self.call(region, "modify_subnet_attribute", SubnetId=subnet["SubnetId"], MapPublicIpOnLaunch=public)
        return str(subnet["SubnetId"])

    def _RouteTableAssociation(self, _name: str, region: str, of: dict[str, Any]) -> str:
        both = {"RouteTableId": of["routeTableId"], "SubnetId": of["subnetId"]}
        return str(self.call(region, "associate_route_table", **both)["AssociationId"])

    def _SecurityGroup(self, name: str, region: str, of: dict[str, Any]) -> str:
        about = {"GroupName": name, "Description": of["description"], "VpcId": of["vpcId"]}
        tags = _tags("security-group", of)
        group = str(self.call(region, "create_security_group", TagSpecifications=tags, **about)["GroupId"])
        # The provider takes the rule away that every group is born with.
        born = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        self.call(region, "revoke_security_group_egress", GroupId=group, IpPermissions=born)
        for way in ("ingress", "egress"):
            rules = [_rule(rule, group) for rule in of[way]]
            self.call(region, f"authorize_security_group_{way}", GroupId=group, IpPermissions=rules)
        return group

    def _PlacementGroup(self, name: str, region: str, of: dict[str, Any]) -> str:
        tags = _tags("placement-group", of)
        self.call(region, "create_placement_group", GroupName=name, Strategy=of["strategy"], TagSpecifications=tags)
        return f"{name}-id"

    def _LaunchTemplate(self, name: str, region: str, of: dict[str, Any]) -> str:
        faces = [_interface(one) for one in of["networkInterfaces"]]
        tags = _tags("launch-template", of)
        data = {"NetworkInterfaces": faces}
        made = self.call(
            region, "create_launch_template", LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=tags
        )
        template = str(made["LaunchTemplate"]["LaunchTemplateId"])
        self.templates[template] = faces
        return template

    def _Instance(self, name: str, region: str, of: dict[str, Any]) -> str:
        disk, options = of["rootBlockDevice"], of["metadataOptions"]
        words: dict[str, Any] = {
            "MinCount": 1,
            "MaxCount": 1,
            "ImageId": of["ami"],
            "InstanceType": of["instanceType"],
            "UserData": of["userData"],
            "TagSpecifications": [*_tags("instance", of), *_tags("volume", {"tags": of["volumeTags"]})],
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {_upper(key): disk[key] for key in disk}}],
            "MetadataOptions": {_upper(key): options[key] for key in options},
        }
        if market := of.get("instanceMarketOptions"):
            words["InstanceMarketOptions"] = {"MarketType": market["marketType"]}
            if spot := market.get("spotOptions"):
                words["InstanceMarketOptions"]["SpotOptions"] = {_upper(key): spot[key] for key in spot}
        if reserved := of.get("capacityReservationSpecification"):
            target = {"CapacityReservationId": reserved["capacityReservationTarget"]["capacityReservationId"]}
            words["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
        if "placementGroup" in of:
            words["Placement"] = {"GroupName": of["placementGroup"]}
        if template := of.get("launchTemplate"):
            words["LaunchTemplate"] = {"LaunchTemplateId": template["id"], "Version": template["version"]}
            # moto reads none of a template's interfaces.
            words["NetworkInterfaces"] = self.templates[template["id"]]
        else:
            # As the provider does for one that is to have a public address.
            face = {"DeviceIndex": 0, "SubnetId": of["subnetId"], "Groups": of["vpcSecurityGroupIds"]}
            words["NetworkInterfaces"] = [{**face, "AssociatePublicIpAddress": of["associatePublicIpAddress"]}]
        (made,) = self.call(region, "run_instances", **words)["Instances"]
        first = min(made["NetworkInterfaces"], key=lambda face: face["Attachment"]["DeviceIndex"])
        self.made[f"{name.removesuffix('-instance')}-primary"] = first["NetworkInterfaceId"]
        return str(made["InstanceId"])

    def _Eip(self, _name: str, region: str, of: dict[str, Any]) -> str:
        made = self.call(region, "allocate_address", Domain=of["domain"], TagSpecifications=_tags("elastic-ip", of))
        address = str(made["AllocationId"])
        if "instance" in of:
            # AssociateAddress: "The instance must have exactly one attached network interface." moto does not look.
            there = self.call(region, "describe_instances", InstanceIds=[of["instance"]])
            if len(there["Reservations"][0]["Instances"][0]["NetworkInterfaces"]) > 1:
                raise Refused(f"there are multiple interfaces attached to instance {of['instance']}")
            self.call(region, "associate_address", AllocationId=address, InstanceId=of["instance"])
        else:
            self.call(region, "associate_address", AllocationId=address, NetworkInterfaceId=of["networkInterface"])
        return address


@cache  # EC2's model is large
def _client(endpoint: str, region: str) -> Any:
    boto3: Any = pytest.importorskip("boto3", reason="AWS'S CALLS ARE NOT TESTED: boto3 is missing; make setup-dev")
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client("ec2", region_name=region, endpoint_url=endpoint, **keys)


def _upper(key: str) -> str:
    return key[0].upper() + key[1:]


def _tags(kind: str, of: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in of["tags"].items()]}]


def _rule(rule: Mapping[str, Any], group: str) -> dict[str, Any]:
    who: dict[str, Any] = {}
    if rule.get("self"):
        who["UserIdGroupPairs"] = [{"GroupId": group, "Description": rule["description"]}]
    if blocks := rule.get("cidrBlocks"):
        who["IpRanges"] = [{"CidrIp": block, "Description": rule["description"]} for block in blocks]
    ports = {} if rule["protocol"] == "-1" else {"FromPort": rule["fromPort"], "ToPort": rule["toPort"]}
    return {"IpProtocol": rule["protocol"], **ports, **who}


def _interface(one: Mapping[str, Any]) -> dict[str, Any]:
    words = {_upper(key): value for key, value in one.items()}
    words["Groups"] = words.pop("SecurityGroups")
    words["DeleteOnTermination"] = words["DeleteOnTermination"] == "true"
    return words


def _hold_against(shape: Any, value: Any, path: str) -> None:
    """Refused where a word is none of EC2's model (a shape of botocore's)."""
    if shape.type_name == "structure":
        for key, item in value.items():
            if key not in shape.members:
                raise Refused(f"{path} has no {key}")
            _hold_against(shape.members[key], item, f"{path}.{key}")
    elif shape.type_name == "list":
        for item in value:
            _hold_against(shape.member, item, path)
    elif (words := getattr(shape, "enum", None)) and value not in words:
        raise Refused(f"{path} has no {value!r}: {words}")
