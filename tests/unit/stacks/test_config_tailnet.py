"""The kinds of tailnet in the config: which one is meant where none is named, and what cannot both be meant."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.config import StackConfig, parse
from stacks.sites import KINDS
from tests.unit.configs import HOSTS, LAB, RawConfig, refused

TABLES = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures" / "sites-and-tailnets.yaml").read_text(encoding="utf-8")
)
STACKS = {"lab": LAB, "hosts": HOSTS}


def read(base: RawConfig, tailnet: Any, folder: Path) -> StackConfig:
    return parse({**copy.deepcopy(base), "tailnet": tailnet}, base_dir=folder, secret_keys=frozenset({"tailnet"}))


def kind_of(config: StackConfig) -> str:
    return config.tailnet.kind_where(any(KINDS[site.kind].brings_tailnet for site in config.sites))


@pytest.mark.parametrize(("stack", "tailnet", "kind"), TABLES["kinds"])
def test_the_kind_is_the_one_that_is_meant(stack: str, tailnet: Any, kind: str, key_folder: Path) -> None:
    assert kind_of(read(STACKS[stack], tailnet, key_folder)) == kind


@pytest.mark.parametrize(("stack", "tailnet", "key", "said"), TABLES["contradictions"])
def test_contradictory_keys_are_named(stack: str, tailnet: Any, key: str, said: str, key_folder: Path) -> None:
    error = refused(read, STACKS[stack], tailnet, key_folder)
    (problem,) = error.problems
    assert problem.path == f"tailrack:tailnet.{key}"
    assert said in problem.text
    assert problem.text.count("; ") >= 1
    assert "tskey-" not in str(error)


@pytest.mark.parametrize("name", ["auth_key", "api_key", "oauth_client_secret", "identity_token"])
def test_the_config_rejects_a_plain_text_secret_without_showing_it(name: str, key_folder: Path) -> None:
    section = {name: "nobody-may-see", **({} if name in ("auth_key", "api_key") else {"oauth_client_id": "k"})}
    error = refused(parse, {**copy.deepcopy(HOSTS), "tailnet": section}, base_dir=key_folder)
    (problem,) = error.problems
    assert problem.path == f"tailrack:tailnet.{name}"
    assert f"pulumi config set --path --secret tailrack:tailnet.{name}" in problem.text
    assert "nobody-may-see" not in str(error)
