"""`make ssh-config`: the logins of the stack's steps, and answers of a head node that are none."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import ssh_config
from cli.output.make_command import Make
from cli.pulumi.workspace import CliError
from cli.stack_config.written_config import WrittenConfig
from tests.unit.recorded import AUTHORITY, public_key

HEAD = {"host": "203.0.113.7", "user": "ubuntu", "port": 22}
FACTS = {"head": "gateway", "nodes": ["n1", "p1"], "ports": {"n1": 2222}, "authorities": [AUTHORITY]}
HOSTS = [{"name": "gateway"}, {"name": "n1", "private_key_file": "/keys/n1"}]
RACK = {"name": "rack", "kind": "hosts", "private_key_file": "keys/rack", "hosts": HOSTS}
CONFIG = {"tailrack:head": {"name": "gateway", "site": "rack"}, "tailrack:sites": [RACK]}


def text(monkeypatch: pytest.MonkeyPatch, connections: Mapping[str, Mapping[str, Any]], answer: object = FACTS) -> str:
    words: dict[str, Any] = {"made": list, "make": Make("prod"), "lab": "none", "written": WrittenConfig(CONFIG)}
    workspace = SimpleNamespace(config_file=Path("/checkout/Pulumi.prod.yaml"))
    deployment: Any = SimpleNamespace(**words, workspace=workspace)
    monkeypatch.setattr(ssh_config, "connections_by_machine", lambda resources: dict(connections))
    printed = answer if isinstance(answer, str) else json.dumps(answer)
    monkeypatch.setattr(ssh_config, "ask_head", lambda *words: printed)
    return ssh_config.config_text(deployment, "gateway")


def block(printed: str, name: str) -> list[str]:
    """The lines of the first block for one machine."""
    blocks = [part.splitlines() for part in printed.split("\n\n")]
    return next([line.strip() for line in lines[1:]] for lines in blocks if lines[0] == f"Host {name}")


def test_each_machine_has_the_account_and_the_key_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = text(monkeypatch, {"gateway": HEAD, "n1": {"host": "10.0.0.3", "user": "root", "port": 2022}})
    assert printed.startswith("# Printed by make ssh-config STACK=prod: ")
    assert block(printed, "gateway") == [
        "HostName 203.0.113.7", "HostKeyAlias gateway", "User ubuntu", 'IdentityFile "/checkout/keys/rack"',
    ]  # fmt: skip
    # The head node knows n1's address and port.
    assert block(printed, "n1") == ["Port 2222", "User root", 'IdentityFile "/keys/n1"', "ProxyJump gateway"]


def test_a_node_of_another_stack_has_the_account_of_the_head_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert block(text(monkeypatch, {"gateway": HEAD}), "p1") == ["User ubuntu", "ProxyJump gateway"]


def test_a_log_in_node_is_reached_directly_and_others_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {**FACTS, "logins": {"n1": [22, "203.0.113.9"]}}
    printed = text(monkeypatch, {"gateway": HEAD, "n1": {"host": "10.0.0.3", "user": "root", "port": 2022}}, answer)
    assert block(printed, "n1")[:4] == ["HostName 203.0.113.9", "HostKeyAlias n1", "Port 2022", "User root"]
    assert block(printed, "p1") == ["User ubuntu", "ProxyJump n1"]


def test_each_bastion_has_its_own_key_and_is_reached_through_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    outer: dict[str, object] = {"address": "198.51.100.1", "user": "ops", "host_key": f"{public_key('outer')} comment"}
    inner = {**outer, "host_key": public_key("inner"), "private_key_file": "keys/inner", "bastion": outer}
    monkeypatch.setitem(RACK, "bastion", inner)
    printed = text(monkeypatch, {"gateway": {**HEAD, "proxy": {"host": "127.1.2.3"}}})
    first, second = (block(printed, f"gateway-bastion-{number}") for number in (1, 2))
    assert first[0] == "HostName 198.51.100.1"
    assert first[-1].endswith(f"%H {public_key('outer')}")
    assert second[3:5] == ['IdentityFile "/checkout/keys/inner"', "ProxyJump gateway-bastion-1"]
    assert "ProxyJump gateway-bastion-2" in block(printed, "gateway")
    assert printed.splitlines()[-3] == "Host gateway n1 p1", "the authority vouches for the cluster's machines alone"


BAD = {"head": "another", "nodes": ["n1\n    ProxyCommand touch /tmp/x"], "authorities": [f"{AUTHORITY}\nHost *"]}


@pytest.mark.parametrize("answer", ["", "[1]", "{", *({**FACTS, key: value} for key, value in BAD.items())])
def test_an_answer_that_is_none_reaches_no_file_of_ssh(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    with pytest.raises(CliError, match=r"the head node gateway gave no usable answer .*: run make up STACK=prod"):
        text(monkeypatch, {"gateway": HEAD}, answer)


def test_a_connection_that_ssh_cannot_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: tuple[tuple[Mapping[str, Mapping[str, Any]], str], ...] = (
        ({"gateway": {**HEAD, "user": "%h"}}, "'%h' cannot be in a configuration of ssh; change it in the config of"),
        ({"gateway": {}}, "this machine is the head node gateway"),
        ({}, "run '/usr/local/bin/tailrack ssh-config' there"),  # no step has reached it
    )
    for connections, message in refused:
        with pytest.raises(CliError, match=message):
            text(monkeypatch, connections)
