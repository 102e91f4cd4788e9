"""Secrets cross as secret inputs and are nowhere else: not in a command line, plain state, or an output."""

from __future__ import annotations

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


def test_every_secret_reaches_the_resources_that_need_it(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack, private_key in zip(stacks, ("lab private key", "private key file"), strict=True):
        joins = [step for step in stack.remote if step.name.endswith("-join")]
        assert len(joins) >= 3
        for join in joins:
            assert secrets["munge key"] in join.inputs["stdin"]
            assert secrets["auth key"] in join.inputs["stdin"]
        for step in stack.remote:
            assert secrets[private_key] in step.inputs["connection"]["privateKey"]


def test_the_munge_key_and_the_auth_key_go_to_no_step_but_the_join(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack in stacks:
        others = [step for step in stack.remote if not step.name.endswith("-join")]
        assert len(others) > 5
        for step in others:
            assert secrets["munge key"] not in step.inputs["stdin"], step.name
            assert secrets["auth key"] not in step.inputs["stdin"], step.name


def test_the_input_of_a_join_is_a_secret_as_a_whole(stacks: list[Any]) -> None:
    for stack in stacks:
        joins = {step.name for step in stack.remote if step.name.endswith("-join")}
        assert joins
        assert {step.name for step in stack.remote if "stdin" in step.secret_paths} == joins


def test_no_secret_rests_in_plain_state(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack in stacks:
        assert len(stack.resources) > 10
        for resource in stack.resources:
            for what, text in secrets.items():
                assert text not in resource.in_plain_state, f"the {what} is in plain inputs of {resource.name}"


def test_no_secret_is_in_a_command_line(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack in stacks:
        commands = [resource.inputs for resource in stack.resources if "create" in resource.inputs]
        assert len(commands) > 10
        for inputs in commands:
            for text in secrets.values():
                assert text not in inputs["create"] + inputs.get("delete", "")


def test_only_the_head_link_output_contains_secrets(stacks: list[Any], secrets: dict[str, str]) -> None:
    for stack in stacks:
        shown = json.dumps({name: value for name, value in stack.outputs.items() if name != "head_link"})
        assert stack.outputs["cluster"]["name"] in shown
        assert [what for what, text in secrets.items() if text in shown] == []
        assert stack.secret_outputs == {"head_link"}


def test_the_head_link_contains_only_the_munge_key_and_the_login_key(
    build: Build, lab_config: RawConfig, secrets: dict[str, str]
) -> None:
    # The auth key is the pool's own affair.
    link = json.dumps(build(lab_config).outputs["head_link"])
    assert [what for what, text in secrets.items() if text in link] == ["munge key", "lab private key"]


def test_without_an_auth_key_the_input_of_a_join_is_secret_all_the_same(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    assert stack.header("a1-join")["TAILNET_AUTH_KEY"] == ""
    assert "stdin" in stack["a1-join"].secret_paths
