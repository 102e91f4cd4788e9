"""A relay of the cluster's own: which node is told, what else is touched, and the grant for it."""

import copy
from pathlib import Path

import pytest

from stacks.config import parse
from tests.unit.configs import LAB, RawConfig, refused
from tests.unit.recorded import Build


def with_relay(**relay: object) -> RawConfig:
    raw = copy.deepcopy(LAB)
    raw["tailnet"] = {"relay": {"node": "head", **relay}}
    return raw


def test_only_the_relay_receives_its_port_and_nothing_else_changes(build: Build) -> None:
    before, after = build(LAB), build(with_relay(port=41000))
    ports = {
        step.name: after.header(step.name)["node_relay_port"] for step in after.remote if step.name.endswith("prepare")
    }
    assert ports == {"head-prepare": "41000", "a1-prepare": "", "b1-prepare": ""}
    assert before.differences(after) == {"head-prepare", "head-head"}


@pytest.mark.parametrize(
    ("relay", "said"),
    [
        ({"node": "b9"}, "tailrack:tailnet.relay.node: 'b9' is not a node of this stack"),
        ({"port": 41641}, "tailrack:tailnet.relay.port: 41641 is tailscaled's own port"),
        ({"port": 80}, "tailrack:tailnet.relay.port"),
    ],
)
def test_a_relay_that_could_be_none_is_refused(relay: dict[str, object], said: str, tmp_path: Path) -> None:
    assert said in str(refused(parse, with_relay(**relay), base_dir=tmp_path))
