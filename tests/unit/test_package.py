"""The package's arguments become the config that the program reads, and its problems name the argument."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.provider.server import ProviderServicer

from package.__main__ import Tailrack
from package.arguments import CLUSTER, SCHEMA, Config, of_another_stack, text
from stacks.config import parse

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOOH4oFOItcOCSd1aBWpO8ppzL7LTfFRYRq6e6eTlFdo"
SITES = [{"name": "a", "kind": "hosts", "user": "root", "hosts": [{"name": "a0"}, {"name": "a1"}]}]


def arguments(**host: Any) -> dict[str, Any]:
    """The arguments of a cluster of two hosts, as Pulumi passes them: all numbers are floats."""
    sites: list[Any] = copy.deepcopy(SITES)
    sites[0]["hosts"][0] |= {"address": "192.0.2.1", "hostKey": HOST_KEY, "agent": True}
    sites[0]["hosts"][1] |= {"address": "192.0.2.2", "hostKey": HOST_KEY, "agent": True, "port": 22.0, **host}
    return {
        "cluster": {"name": "lab"},
        "head": {"name": "a0", "site": "a"},
        "users": [{"name": "ada", "uid": 6001.0}],
        "tailnet": {"authKey": pulumi.Output.secret("tskey-auth-1")},
        "validation": {"floorsGbPerS": {"cross-site": 1.5}},
        "sites": sites,
    }


async def settled(value: Any) -> Any:
    """An argument as a provider gets it: an Output whose value has arrived."""
    output = pulumi.Output.from_input(value) if not isinstance(value, pulumi.Output) else value
    await output.future()
    return output


def config_of(**host: Any) -> Config:
    async def read() -> Config:
        values = arguments(**{key: await settled(value()) if callable(value) else value for key, value in host.items()})
        await settled(values["tailnet"]["authKey"])
        return Config.of(values)

    return asyncio.run(read())


def unknown() -> pulumi.Output[Any]:
    return pulumi.Output.from_input(pulumi.UNKNOWN)


def test_the_schema_file_is_what_make_schema_writes() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == text(), "run: make schema"


@pytest.mark.parametrize("value", [lambda: "192.0.2.9", unknown])
def test_addresses_and_keys_may_be_outputs_and_the_config_is_valid_before_they_are_known(value: Any) -> None:
    outputs = {"address": value, "privateKey": value} | ({"hostKey": value} if value is unknown else {})
    config = config_of(**outputs)
    checked = parse(config.raw, base_dir=Path("/"), secret_keys=frozenset(config.secret_keys))
    assert [node.name for node in checked.nodes()] == ["a0", "a1"]
    assert config.secret_keys == {"tailnet"}
    assert set(config.connections["a1"]) == {"host", "private_key"} | ({"host_key"} if value is unknown else set())
    assert all(isinstance(output, pulumi.Output) for output in config.connections["a1"].values())


def test_a_number_of_resources_that_depends_on_an_output_is_refused() -> None:
    with pytest.raises(pulumi.InputPropertyError, match="not known before the program runs"):
        config_of(name=unknown)


@pytest.mark.parametrize(
    ("host", "place", "problem"),
    [
        ({"prot": 22.0}, "sites[0].hosts[1].prot", "did you mean"),
        ({"pricePerHour": -1.0}, "sites[0].hosts[1].pricePerHour", "price"),
    ],
)
def test_a_problem_of_the_config_is_one_of_the_argument(host: dict[str, Any], place: str, problem: str) -> None:
    async def construct() -> None:
        values = arguments(**host)
        await settled(values["tailnet"]["authKey"])
        Tailrack("0.0.0", "{}").construct("prod", CLUSTER, values)

    with pytest.raises(pulumi.InputPropertiesError) as refused:
        asyncio.run(construct())
    (error,) = refused.value.errors or [{"property_path": "", "reason": ""}]
    assert error["property_path"] == place
    assert problem in error["reason"]


def test_a_site_whose_machines_tailrack_would_make_is_refused() -> None:
    with pytest.raises(pulumi.InputPropertyError, match="list them as hosts"):
        Config.of({"sites": [{"name": "a", "kind": "aws"}]})


@pytest.mark.parametrize(("kind", "allowed"), [("pulumi:pulumi:StackReference", True), (CLUSTER, False)])
def test_a_pool_joins_a_cluster_of_another_stack_only(kind: str, allowed: bool) -> None:
    async def read(name: Any) -> Any:
        value = {"name": name, "nodes": [{"gpus": 2.0}]}
        output = await ProviderServicer._select_value(value, {f"urn:pulumi:dev::user::{kind}::prod"})
        return of_another_stack(output, "cluster")

    if allowed:
        assert asyncio.run(read("large")) == {"name": "large", "nodes": [{"gpus": 2}]}
    with pytest.raises(pulumi.InputPropertyError, match="StackReference"):
        asyncio.run(read(pulumi.UNKNOWN if allowed else "large"))
