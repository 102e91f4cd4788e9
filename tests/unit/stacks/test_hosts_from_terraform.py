"""Hosts that are an output of Terraform or OpenTofu: read from a state or from printed outputs, or one error."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.stack_config.written_config import WrittenConfig
from stacks.config import parse
from stacks.sites.hosts.terraform import read_outputs
from tests.unit.configs import refused
from tests.unit.stacks.test_hosts_from import N1, N2, SECRET, raw

TYPE = ["tuple", [["object", {"address": "string", "host_key": "string", "name": "string"}]]]
# What `terraform output -json` prints, and where a state has the same.
PRINTED: dict[str, Any] = {"hosts": {"sensitive": False, "type": TYPE, "value": [N1, N2]}}
STATE: dict[str, Any] = {
    **{"version": 4, "terraform_version": "1.13.4", "serial": 7, "lineage": "5e3d2f3e-9d4d-8f1c-5a8c-0f1f2d3c4b5a"},
    "outputs": {
        "hosts": {"value": [N1, N2], "type": TYPE},
        "token": {"value": "hush", "type": "string", "sensitive": True},
    },
    **{"resources": [], "check_results": None},
}
FROM = {"terraform": "vms.json"}


def problems(folder: Path, content: str, **hosts_from: Any) -> str:
    (folder / "vms.json").write_text(content)
    (problem,) = refused(parse, raw(hosts_from=FROM | hosts_from), base_dir=folder, secret_keys=SECRET).problems
    return str(problem)


@pytest.mark.parametrize("content", [PRINTED, STATE])
def test_the_hosts_of_a_state_or_of_printed_outputs_are_hosts_of_the_site(folder: Path, content: object) -> None:
    (folder / "vms.json").write_text(json.dumps(content))
    nodes = parse(raw(hosts_from=FROM), base_dir=folder, secret_keys=SECRET).nodes()
    assert [(node.name, node.site) for node in nodes] == [("n1", "rack"), ("n2", "rack")]


def test_commands_find_a_host_of_a_terraform_file_next_to_the_config(folder: Path) -> None:
    (folder / "vms.json").write_text(json.dumps(STATE))
    written = WrittenConfig({"tailrack:sites": raw(hosts_from=FROM)["sites"]}, base_dir=folder)
    assert written.host_names == ["n1", "n2"]
    host = written.host("n2")
    assert host is not None
    assert (host["address"], host["user"]) == ("192.0.2.2", "ubuntu")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON; "),
        ("[" * 100_000, "not JSON; "),
        ("[]", "neither a state (version 4) nor what `terraform output -json`"),
        ('{"version": 3, "modules": []}', "neither a state (version 4) nor"),
        ('{"version": 4, "outputs": []}', "neither a state (version 4) nor"),
    ],
)
def test_a_file_without_outputs_is_named_with_the_command_for_one(folder: Path, content: str, problem: str) -> None:
    text = problems(folder, content)
    assert text.startswith(f"tailrack:sites[0].hosts_from.terraform: 'vms.json' cannot be read: vms.json is {problem}")
    assert text.endswith("or of a file made by: terraform output -json >FILE")


@pytest.mark.parametrize("key", ["private_key_file", "agent", "take_over", "adopt"])
def test_a_state_chooses_nothing_that_the_operator_decides(folder: Path, key: str) -> None:
    hosts = {"hosts": {"value": [N1, {**N2, key: True, "user": "root", "port": 2222}]}}
    text = problems(folder, json.dumps(hosts))
    assert f"hosts_from.output[1].{key}: is not a key that a Terraform state may choose" in text
    assert "write it for the site" in text


def test_a_file_that_is_not_there_or_is_none_is_one_error(folder: Path) -> None:
    assert "vms.json cannot be read: No such file or directory" in read_outputs(folder / "vms.json").error
    assert "cannot be read: Is a directory" in read_outputs(folder).error
    assert "is not a regular file" in read_outputs(Path("/dev/zero")).error


def test_an_output_that_is_missing_sensitive_or_no_list_is_one_error_without_its_value(folder: Path) -> None:
    state = json.dumps(STATE)
    missing = problems(folder, state, output="vms")
    assert "'vms' is not an output of file 'vms.json', or not known yet (its outputs: hosts, token)" in missing
    secret = problems(folder, state, output="token")
    assert "'token' is a secret of file 'vms.json', or contains one" in secret
    assert "hush" not in secret
    text = problems(folder, json.dumps({"hosts": {"value": "n1"}}))
    assert "'hosts' of file 'vms.json' is a text, not a list" in text
    assert "'hosts' of file 'vms.json' is an empty list" in problems(folder, json.dumps({"hosts": {"value": []}}))
