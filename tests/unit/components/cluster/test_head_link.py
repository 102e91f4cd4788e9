"""HeadLink: a node gets the same of its head node from this stack and from the outputs of another one."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.cluster.cluster import NO_POOL, Cluster
from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.host import Connection, Host
from components.roles.cluster_settings import ClusterSettings
from components.roles.order import roles
from components.settings.serialize import shape
from stacks.config import parse
from tests.unit.configs import HOST_KEY, LAB, MUNGE_KEY
from tests.unit.recorded import Recorded, record


def host(name: str, here: bool = False) -> Host:
    way = None if here else Connection("192.0.2.1", 22, "root", "private", HOST_KEY)
    return Host(name=name, site="cloud-a", connection=way)


def with_a_node(by_outputs: bool, *, here: bool = False, known_here: bool | None = None) -> Recorded:
    """A cluster of a head node alone, and a node p1 that is told of it in one of the two ways.

    here   the head node is local; known_here: what the stack of p1 says of that, the truth if it is left out
    """
    settings = parse(copy.deepcopy(LAB), base_dir=Path())

    async def program() -> dict[str, Any]:
        cluster = Cluster(
            settings, sites=["cloud-a"], head=host("head", here), nodes=[], measured_before=pulumi.Output.from_input({})
        )
        link = cluster.head.link
        if by_outputs:
            told = await pulumi.Output.all(**link.to_outputs()).future()
            assert told is not None
            there = HeadLink.settings_of(told)
            assert there is not None
            link = HeadLink.from_outputs(told, there, head_is_local=here if known_here is None else known_here)
        own = roles(settings)
        values = {name: value for role in own for name, value in role.values.items()} | NO_POOL
        secrets = {"munge_key": link.munge_key, "tailnet_auth_key": pulumi.Output.secret("")}
        ComputeNode(host("p1"), link, own, values, secrets)
        return {}

    return record(program)


@pytest.mark.parametrize("step", ["prepare", "register", "node"])
def test_outputs_of_another_stack_link_a_node_to_its_head_node_unchanged(step: str) -> None:
    here, elsewhere = with_a_node(False)[f"p1-{step}"], with_a_node(True)[f"p1-{step}"]
    assert elsewhere.inputs["stdin"] == here.inputs["stdin"]
    assert elsewhere.inputs["create"] == here.inputs["create"]
    assert {**elsewhere.inputs["connection"]} == {**here.inputs["connection"]}
    assert ("stdin" in elsewhere.secret_paths) == (step == "prepare")


def test_the_munge_key_of_another_stack_stays_secret() -> None:
    resources = with_a_node(True).resources
    assert len(resources) > 5
    assert [one.name for one in resources if MUNGE_KEY in one.in_plain_state] == []


def test_a_local_head_node_gives_no_connection_and_is_used_by_stacks_on_the_same_machine_alone() -> None:
    local = with_a_node(False, here=True)["p1-register"]
    assert with_a_node(True, here=True)["p1-register"].inputs == local.inputs
    assert local.type == "command:local:Command"
    with pytest.raises(pulumi.RunError, match="the head node head is local: run this stack on that machine"):
        with_a_node(True, here=True, known_here=False)


def test_a_stack_of_another_process_reads_the_settings_of_a_cluster() -> None:
    imports = "from components.roles.cluster_settings import ClusterSettings as Settings"
    code = f"{imports}\nfrom components.settings.serialize import shape\nprint(shape(Settings))"
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.strip() == shape(ClusterSettings)
