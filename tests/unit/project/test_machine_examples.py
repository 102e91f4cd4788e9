"""examples/machines: each cloud's program declares machines whose output is a site's hosts. No account was used."""

import base64
import binascii
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stacks.sites.hosts.outputs import OtherStack
from tests.unit.configs import HOST_KEY
from tests.unit.project.machine_examples import EXAMPLE, PACKAGES, PROJECT, PUBLIC
from tests.unit.shell import assert_ok
from tests.unit.stacks.test_hosts_from import config

CLOUDS: dict[str, dict[str, str]] = {"google": {}, "digitalocean": {"ssh_key": "12345"}}
PRIVATE = "HOST-KEY-SECRET"
pytestmark = [
    pytest.mark.sdk,
    pytest.mark.skipif(
        not (PACKAGES / "pulumi_tls").is_dir(),
        reason="EXAMPLES OF MACHINES ARE NOT TESTED: their packages are not in .tailrack/packages; make test-sdk",
    ),
]


@cache
def run(cloud: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.unit.project.machine_examples", cloud, json.dumps(CLOUDS[cloud])]
    done = assert_ok(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_output_of_each_clouds_program_is_two_verified_hosts_of_a_site(cloud: str, folder: Path) -> None:
    answer = run(cloud)
    assert answer["hosts"] == [{"name": f"prod-{n}", "address": PUBLIC, "host_key": HOST_KEY} for n in (1, 2)]
    hosts = [{**host, "name": f"n{n}", "address": f"198.51.100.{n}"} for n, host in enumerate(answer["hosts"], 1)]
    checked = config(folder, None, OtherStack({"hosts": hosts}))
    assert [node.name for node in checked.nodes()] == ["n1", "n2"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_private_half_of_the_host_key_is_only_in_user_data(cloud: str) -> None:
    answer = run(cloud)
    assert PRIVATE not in json.dumps(answer["hosts"])
    holders = [resource["name"] for resource in answer["resources"] if carries(resource["inputs"])]
    assert sorted(holders) == ["prod-1", "prod-2"]


def carries(value: object) -> bool:
    """Whether a resource's inputs carry user data with the key, as text or in base64."""
    if isinstance(value, dict):
        return any(carries(each) for each in value.values())
    if isinstance(value, list):
        return any(carries(each) for each in value)
    if not isinstance(value, str):
        return False
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        decoded = ""
    return PRIVATE in value or PRIVATE in decoded


def test_a_spot_machine_is_another_machine_than_one_on_demand() -> None:
    assert run("google")["spot"] != run("google")["resources"]


def test_every_module_of_a_cloud_is_in_the_readme_and_tested() -> None:
    modules = {file.stem for file in (EXAMPLE / "clouds").glob("*.py")} - {"__init__"}
    assert modules == CLOUDS.keys()
    readme = (EXAMPLE / "README.md").read_text()
    assert all(f"`{cloud}`" in readme for cloud in modules)
    assert "not run with an account" in readme
