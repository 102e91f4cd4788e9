"""The lab's names, what its commands read, and how a command line ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import __main__ as cli
from lab import docker_daemon
from lab.errors import LabError
from lab.identity import container_name, control_name, lab_id, network_name
from lab.spec import NetworkSpec, NodeSpec, PoolSpec, parse

NODE = {"lab": "3fa9c1", "state_dir": ".tailrack/lab", "node": "a1", "site": "cloud-a"}


def test_a_lab_id_is_six_hex_digits_that_only_the_path_decides(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert lab_id(first) == lab_id(first / ".." / "first")
    assert lab_id(first) != lab_id(second)
    assert len(lab_id(first)) == 6
    assert int(lab_id(first), 16) >= 0


def test_a_suffix_gives_a_checkout_a_further_lab(tmp_path: Path) -> None:
    assert lab_id(tmp_path, "test") == lab_id(tmp_path) + "test"


def test_everything_of_a_lab_is_called_after_it() -> None:
    assert container_name("3fa9c1", "a1") == "tailrack-3fa9c1-a1"
    assert network_name("3fa9c1", "cloud-a") == "tailrack-3fa9c1-cloud-a"
    assert control_name("3fa9c1") == "tailrack-3fa9c1-control"


def test_a_node_is_not_bare_unless_it_says_so() -> None:
    spec = parse(NodeSpec, json.dumps(NODE))
    assert spec.bare is False
    assert spec.folder == Path(".tailrack/lab/3fa9c1")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"node": "control"}, "control server"),
        ({"node": "A1"}, "node"),
        ({"lab": "../x"}, "lab"),
        ({"bare": "perhaps"}, "bare"),
        ({"color": "red"}, "color"),
        ({"like": "server", "busy": True}, "only a machine with like: cloud is ever busy with updates"),
    ],
)
def test_a_wrong_node_spec_names_the_key(change: dict[str, Any], named: str) -> None:
    with pytest.raises(LabError, match=named):
        parse(NodeSpec, json.dumps({**NODE, **change}))


@pytest.mark.parametrize("subnet", ["8.8.8.0/24", "10.0.0.0/30", "10.0.0.1/24", "cloud"])
def test_a_site_takes_only_private_subnets_with_room(subnet: str) -> None:
    with pytest.raises(LabError, match="cloud-a"):
        parse(NetworkSpec, json.dumps({"lab": "x", "state_dir": ".", "sites": {"cloud-a": subnet}}))


def test_a_site_may_leave_its_subnet_to_the_lab() -> None:
    spec = parse(NetworkSpec, '{"lab": "x", "state_dir": ".", "sites": {"cloud-a": null, "cloud-b": "10.77.2.0/24"}}')
    assert spec.sites == {"cloud-a": None, "cloud-b": "10.77.2.0/24"}


def test_an_error_is_one_line_on_stderr_and_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise LabError("the first line\nand a second")

    monkeypatch.setattr(docker_daemon, "connect", fail)
    assert cli.main(["network", "up"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "lab: the first line and a second\n")


def test_a_pool_names_the_stack_of_its_lab_networks() -> None:
    told = '{"lab": "x", "state_dir": ".", "sites": {"cloud-c": null}, "pool": "dev-burst"}'
    assert parse(PoolSpec, told).pool == "dev-burst"
    with pytest.raises(LabError, match="pool"):
        parse(PoolSpec, told.replace("dev-burst", "dev burst"))
