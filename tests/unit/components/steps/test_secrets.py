"""Secrets cross as secret inputs and are nowhere else: not in a command line, plain state, or an output."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.configs import RawConfig
from tests.unit.recorded import Build


@pytest.fixture
def secrets(secret_texts: dict[str, str], key_folder: Path) -> dict[str, str]:
    """Every secret by what it is, as one line that can be searched for."""
    return {**secret_texts, "private key file": (key_folder / "key").read_text().splitlines()[2]}


@pytest.fixture
def stacks(build: Build, lab_config: RawConfig, hosts_config: RawConfig) -> list[Any]:
    """A lab whose control server asks for a key, and a cluster of hosts."""
    lab_config["tailnet"] = hosts_config["tailnet"]
    return [build(lab_config), build(hosts_config)]


def test_every_secret_reaches_the_steps_that_need_it_and_no_others(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack, private_key in zip(stacks, ("lab private key", "private key file"), strict=True):
        joins = {step.name for step in stack.remote if step.name.endswith("-prepare")}
        assert 3 <= len(joins) < len(stack.remote) - 5
        for step in stack.remote:
            for name in ("munge key", "auth key"):
                assert (secrets[name] in step.inputs["stdin"]) == (step.name in joins), step.name
            assert secrets[private_key] in step.inputs["connection"]["privateKey"]
        # The input of a join is a secret as a whole.
        assert {step.name for step in stack.remote if "stdin" in step.secret_paths} == joins


def test_no_secret_is_in_plain_state_or_a_command_line(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack in stacks:
        assert len([resource for resource in stack.resources if "create" in resource.inputs]) > 10
        for resource in stack.resources:
            command = resource.inputs.get("create", "") + resource.inputs.get("delete", "")
            for name, text in secrets.items():
                assert text not in resource.in_plain_state, f"the {name} is in plain inputs of {resource.name}"
                assert text not in command, f"the {name} is in a command of {resource.name}"


def test_only_the_head_link_output_contains_secrets(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack in stacks:
        shown = json.dumps({name: value for name, value in stack.outputs.items() if name != "head_link"})
        assert stack.outputs["cluster"]["name"] in shown
        assert [what for what, text in secrets.items() if text in shown] == []
        assert stack.secret_outputs == {"head_link"}


def test_the_head_link_contains_two_keys_alone(build: Build, lab_config: RawConfig, secrets: dict[str, str]) -> None:
    # The auth key is the pool's own affair.
    link = json.dumps(build(lab_config).outputs["head_link"])
    assert [what for what, text in secrets.items() if text in link] == ["munge key", "lab private key"]


def test_without_an_auth_key_the_input_of_a_join_is_secret_all_the_same(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    assert stack.header("a1-prepare")["tailnet_auth_key"] == ""
    assert "stdin" in stack["a1-prepare"].secret_paths
