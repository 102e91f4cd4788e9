"""Sites of kinds gcp and nebius, against mocks: no account was used. And the first host key of machines of any kind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from stacks.config import ConfigError, load, parse
from tests.unit.configs import AUTH_KEY, FIRST_KEY, RawConfig
from tests.unit.recorded import Build

PACKAGES = Path(__file__).parents[3] / ".tailrack" / "packages"
if PACKAGES.is_dir() and str(PACKAGES) not in sys.path:
    sys.path.append(str(PACKAGES))

COMMON: RawConfig = {
    "cluster": {"name": "prod"},
    "users": [{"name": "ada", "uid": 6001}],
    "tailnet": {"auth_key": AUTH_KEY},
}
GCP: RawConfig = {
    **COMMON,
    "head": {"name": "door", "site": "google"},
    "sites": [
        {
            "name": "google", "kind": "gcp", "zone": "us-central1-a", "private_key_file": "key",
            "tags": {"team": "vision"}, "head": {"type": "e2-standard-4"}, "image": "deeplearning/common-cu129",
            "pools": [{"name": "g", "type": "a3-highgpu-8g", "gpu": "h100:8", "spot": True, "price_per_hour": 30}],
        }
    ],
}  # fmt: skip
NEBIUS: RawConfig = {
    **COMMON,
    "head": {"name": "door", "site": "north"},
    "sites": [
        {
            "name": "north", "kind": "nebius", "project": "project-e00abc", "subnet": "vpcsubnet-e00abc",
            "private_key_file": "key", "image": "ubuntu24.04-cuda12",
            "head": {"type": "cpu-d3", "preset": "4vcpu-16gb"},
            "pools": [{"name": "n", "type": "gpu-h100-sxm", "preset": "8gpu-128vcpu-1600gb", "gpu": "h100:8"}],
        }
    ],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    f"{node}-instance": {
        "networkInterfaces": [{"accessConfigs": [{"natIp": f"198.51.100.{number}"}]}],
        "status": {"networkInterfaces": [{"publicIpAddress": {"address": f"198.51.100.{number}/32"}}]},
    }
    for number, node in enumerate(("door", "g1", "n1"), 1)
}
CONFIGS = {"gcp": GCP, "nebius": NEBIUS}


@pytest.fixture(params=CONFIGS)
def kind(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(f"pulumi_{request.param}", reason="NOT TESTED: the package is not in .tailrack/packages")
    return str(request.param)


@pytest.fixture
def stack(kind: str, build: Build) -> Any:
    # gcp returns the whole answer, nebius only its own part of it.
    part = {"gcp": "networkInterfaces", "nebius": "status"}[kind]
    return build(CONFIGS[kind], answers={name: {part: answer[part]} for name, answer in ANSWERS.items()})


def instances(stack: Any) -> dict[str, dict[str, Any]]:
    return {one.name: dict(one.inputs) for one in stack.resources if one.name.endswith("-instance")}


def test_each_node_is_one_instance_with_the_tags_and_a_secret_first_key(kind: str, stack: Any) -> None:
    node = {"gcp": "g1", "nebius": "n1"}[kind]
    assert instances(stack).keys() == {"door-instance", f"{node}-instance"}
    labels = instances(stack)[f"{node}-instance"]["labels"]
    assert labels["tailrack-stack"] == "dev"
    assert (FIRST_KEY in json.dumps(instances(stack))) is True
    assert not [one.name for one in stack.resources if FIRST_KEY in one.in_plain_state]


def test_every_connection_is_verified_and_the_second_key_is_the_machines_own(kind: str, stack: Any) -> None:
    for number, name in ((1, "door"), ({"gcp": 2, "nebius": 3}[kind], {"gcp": "g1", "nebius": "n1"}[kind])):
        first, later = (stack[f"{name}-{step}"].inputs["connection"] for step in ("host-key", "check"))
        assert first["host"] == later["host"] == f"198.51.100.{number}"
        assert first["hostKey"] == "ecdsa-sha2-nistp256 first-public"
        assert later["hostKey"].startswith("ssh-ed25519 ")


def test_a_spot_machine_of_google_ends_when_it_is_taken_back(build: Build) -> None:
    pytest.importorskip("pulumi_gcp")
    part = {name: {"networkInterfaces": answer["networkInterfaces"]} for name, answer in ANSWERS.items()}
    found = instances(build(GCP, answers=part))
    assert found["g1-instance"]["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert found["door-instance"]["scheduling"]["provisioningModel"] == "STANDARD"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tests.unit.configs import PRIVATE_KEY

    (tmp_path / "key").write_text(PRIVATE_KEY)
    return tmp_path


@pytest.mark.parametrize(
    ("config", "site", "path", "words"),
    [
        (GCP, {"zone": "us-central1"}, "zone", "is not a zone's name"),
        (GCP, {"project": "My Project"}, "project", "is not a project's id"),
        (GCP, {"image": "ubuntu-os-cloud/ubuntu-2404-lts-amd64"}, "image", "has no NVIDIA driver"),
        (GCP, {"head": None}, "head", "missing, but the head node is at this site"),
        (NEBIUS, {"project": "A B"}, "project", "is not an id such as project-e00abc"),
        (NEBIUS, {"image": "ubuntu24.04-driverless"}, "image", "has no NVIDIA driver"),
        (NEBIUS, {"pools": [{"name": "n", "type": "gpu-h100-sxm"}]}, "pools[0].preset", "missing"),
    ],
)
def test_a_bad_value_is_named_with_its_place(
    folder: Path, config: RawConfig, site: dict[str, Any], path: str, words: str
) -> None:
    raw = {**config, "sites": [{**config["sites"][0], **site}]}
    with pytest.raises(ConfigError) as refused:
        parse(raw, base_dir=folder, secret_keys=frozenset({"tailnet"}))
    assert f"tailrack:sites[0].{path}: " in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "key", ["gcp:computeCustomEndpoint", "gcp:credentials", "gcp:universeDomain", "nebius:domain", "nebius:resolvers"]
)
def test_a_provider_key_that_sends_credentials_elsewhere_is_refused(folder: Path, key: str) -> None:
    values = {f"tailrack:{name}": json.dumps(value) for name, value in GCP.items()}
    with pytest.raises(ConfigError, match=rf"'{key}': is a key of the \w+ provider that a stack's config may not set"):
        load({**values, key: "https://example.org"}, ["tailrack:tailnet"], folder)


def test_the_project_and_the_profile_may_be_set(folder: Path) -> None:
    values = {f"tailrack:{name}": json.dumps(value) for name, value in GCP.items()}
    load({**values, "gcp:project": "vision-1", "nebius:profile": "prod"}, ["tailrack:tailnet"], folder)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_package_is_imported_only_for_a_stack_with_such_a_site(kind: str, folder: Path) -> None:
    import subprocess

    code = f"import sys, stacks.config; assert 'pulumi_{kind}' not in sys.modules; assert 'pulumi' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
