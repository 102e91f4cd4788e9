"""The lab's names, what its commands read, and how a command line ends."""

import json
from typing import Any

import pytest

from lab import __main__ as cli
from lab import docker_daemon
from lab.errors import LabError
from lab.spec import NetworkSpec, NodeSpec, PoolSpec, parse

NODE = {"lab": "3fa9c1", "state_dir": ".tailrack/lab", "node": "a1", "site": "cloud-a"}


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


def test_an_error_is_one_line_and_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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
