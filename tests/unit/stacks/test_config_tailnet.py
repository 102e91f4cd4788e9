"""The kinds of tailnet in the config: which one is meant where none is named, and what cannot both be meant."""

import copy
from pathlib import Path
from typing import Any

import pytest

from components.roles.network.tailnet.settings import API
from stacks.config import StackConfig, parse
from stacks.sites import KINDS
from tests.unit.configs import AUTH_KEY, HOSTS, LAB, RawConfig, refused

URL = "https://headscale.example.org"
OAUTH = {"oauth_client_id": "kClient1", "oauth_client_secret": "tskey-client-x"}


def read(base: RawConfig, tailnet: Any, folder: Path) -> StackConfig:
    return parse({**copy.deepcopy(base), "tailnet": tailnet}, base_dir=folder, secret_keys=frozenset({"tailnet"}))


def kind_of(config: StackConfig) -> str:
    return config.tailnet.kind_where(any(KINDS[site.kind].brings_tailnet for site in config.sites))


@pytest.mark.parametrize(
    ("base", "tailnet", "kind"),
    [
        (LAB, {}, "lab"),
        (LAB, {"auth_key": AUTH_KEY}, "lab"),
        (LAB, {"kind": "lab"}, "lab"),
        (LAB, {"control_url": URL}, "control_url"),
        (HOSTS, {"auth_key": AUTH_KEY}, "control_url"),
        (HOSTS, {"control_url": URL}, "control_url"),
        (HOSTS, {"control_url": URL, "auth_key": AUTH_KEY, "tag": "tag:x"}, "control_url"),
        (HOSTS, {"kind": "control_url", "auth_key": AUTH_KEY}, "control_url"),
        (HOSTS, {"kind": "existing"}, "existing"),
        (HOSTS, {"kind": "existing", "control_url": URL}, "existing"),
        (HOSTS, OAUTH, "tailscale"),
        (HOSTS, {"kind": "tailscale", "api_key": "tskey-api-x"}, "tailscale"),
        (HOSTS, {"oauth_client_id": "k", "audience": "api.tailscale.com/k"}, "tailscale"),
        (HOSTS, {**OAUTH, "base_url": "http://127.0.0.1:8080/", "organization": "-", "policy": "own"}, "tailscale"),
        (HOSTS, {**OAUTH, "base_url": "http://[::1]:8080"}, "tailscale"),
        (HOSTS, {**OAUTH, "base_url": "https://api.tailscale.com/"}, "tailscale"),
    ],
)
def test_the_kind_is_the_one_that_is_meant(base: RawConfig, tailnet: Any, kind: str, key_folder: Path) -> None:
    assert kind_of(read(base, tailnet, key_folder)) == kind


@pytest.mark.parametrize(
    ("base", "tailnet", "key", "said"),
    [
        (HOSTS, {"kind": "headscale"}, "kind", "write one of them"),
        (HOSTS, {"kind": "tailscale"}, "kind", "without credentials"),
        (HOSTS, {**OAUTH, "auth_key": AUTH_KEY}, "auth_key", "is not a key of kind tailscale"),
        (HOSTS, {**OAUTH, "control_url": URL}, "control_url", "remove it, or write kind: control_url or existing"),
        (HOSTS, {**OAUTH, "api_key": "tskey-api-x"}, "api_key", "is set with oauth_client_id, oauth_client_secret"),
        (HOSTS, {"oauth_client_secret": "x"}, "oauth_client_id", "is missing, but oauth_client_secret is set"),
        (HOSTS, {"oauth_client_id": "x"}, "oauth_client_id", "is set with nothing else"),
        (HOSTS, {**OAUTH, "audience": "x"}, "oauth_client_id", "is set with audience, oauth_client_secret"),
        (HOSTS, {**OAUTH, "base_url": "http://192.0.2.1"}, "base_url", "credentials elsewhere"),
        (HOSTS, {**OAUTH, "base_url": "https://192.0.2.1"}, "base_url", "credentials elsewhere"),
        (HOSTS, {**OAUTH, "base_url": "https://api.tailscale.com.example"}, "base_url", "credentials elsewhere"),
        (HOSTS, {**OAUTH, "base_url": "https://api.tailscale.com:8443"}, "base_url", "credentials elsewhere"),
        (HOSTS, {**OAUTH, "base_url": "http://api.tailscale.com"}, "base_url", "credentials elsewhere"),
        (HOSTS, {**OAUTH, "base_url": "https://127.0.0.1.example"}, "base_url", "credentials elsewhere"),
        (HOSTS, {**OAUTH, "base_url": "ftp://x"}, "base_url", "is not the address of Tailscale's API"),
        (HOSTS, {**OAUTH, "policy": "mine"}, "policy", "write one of them"),
        (HOSTS, {"auth_key": AUTH_KEY, "policy": "own"}, "policy", "the stack would not use Tailscale's API"),
        (HOSTS, {"kind": "control_url"}, "auth_key", "no node could join Tailscale's tailnet"),
        (HOSTS, {"kind": "control_url", "control_url": URL, "base_url": API}, "base_url", "kind control_url"),
        (HOSTS, {"kind": "existing", "auth_key": AUTH_KEY}, "auth_key", "no machine joins a tailnet"),
        (HOSTS, {"kind": "lab"}, "kind", "no site brings a tailnet"),
        (LAB, {"kind": "lab", "control_url": URL}, "control_url", "the control server of the sites"),
        (LAB, OAUTH, "kind", "a site brings its own tailnet"),
        (LAB, {"kind": "existing"}, "kind", "the stack creates the machines of site cloud-a"),
    ],
)
def test_contradictory_keys_are_named(base: RawConfig, tailnet: Any, key: str, said: str, key_folder: Path) -> None:
    error = refused(read, base, tailnet, key_folder)
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
