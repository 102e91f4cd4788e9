"""`tailrack ssh-config`: the blocks as ssh reads them, hostile values, and where the head node was reached."""

import json
import re
import subprocess
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.tailrack import ssh_config
from components.roles.commands.tailrack.ssh_config import Facts, Login, blocks
from tests.unit.recorded import AUTHORITY, LEAVE_KEY, public_key

OTHER = public_key("next authority")
FACTS = Facts("head", ("a1", "a2", "b1"), {"b1": 2222}, (AUTHORITY,))


def settings(path: Path, machine: str) -> dict[str, str]:
    """What the ssh of this machine reads for a machine."""
    done = subprocess.run(["ssh", "-F", path, "-G", machine], capture_output=True, text=True, check=True)
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(blocks(ssh_config.logins(FACTS, "ada", "203.0.113.7", 22), FACTS.authorities))
    return path


def test_nodes_are_reached_through_the_head_node_which_is_known_by_its_name(config: Path) -> None:
    head = settings(config, "head")
    assert (head["hostname"], head["hostkeyalias"], head["user"]) == ("203.0.113.7", "head", "ada")
    assert "proxyjump" not in head
    assert head["stricthostkeychecking"] == "true"
    for node, port in (("a1", "22"), ("a2", "22"), ("b1", "2222")):
        read = settings(config, node)
        assert (read["hostname"], read["port"], read["proxyjump"], read["user"]) == (node, port, "head", "ada")


def test_nodes_are_reached_through_a_log_in_node_where_there_is_one(tmp_path: Path) -> None:
    facts = replace(FACTS, logins={"a2": (2200, "203.0.113.8")})
    path = tmp_path / "config"
    path.write_text(blocks(ssh_config.logins(facts, "ada", "203.0.113.7", 22), facts.authorities))
    assert path.read_text().startswith("\nHost a2\n")
    login = settings(path, "a2")
    assert (login["hostname"], login["port"], login["hostkeyalias"]) == ("203.0.113.8", "2200", "a2")
    assert not {"proxyjump"} & (login.keys() | settings(path, "head").keys())
    assert settings(path, "a1")["proxyjump"] == "a2"


def test_the_command_prints_all_authorities_as_known_hosts() -> None:
    text = blocks([Login("head", "ada", address="192.0.2.1")], [AUTHORITY, OTHER])
    (line,) = [line for line in text.splitlines() if "KnownHostsCommand" in line]
    command = line.split(maxsplit=1)[1].replace("%%", "%").replace("%H", "head")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == f"@cert-authority head {AUTHORITY}\n@cert-authority head {OTHER}\n"


def accepts(make: Callable[[], object], problem: str) -> bool:
    """Whether nothing is refused for this problem."""
    try:
        make()
    except ValueError as error:
        return re.search(problem, str(error)) is None
    return True


def test_a_value_that_would_be_another_line_of_ssh_is_refused() -> None:
    problem = "cannot be in a configuration of ssh|is not a port"
    bad: dict[str, tuple[object, ...]] = {
        "name": ("a1\n    ProxyCommand touch /tmp/x", "a*", "-oProxyCommand=x", "A1", ""),
        "user": ("ada\nProxyCommand x", "-l", "%h", ""),
        "address": ("192.0.2.1 # x", "-oProxyCommand", "$(x)"),
        "jump": ("head,evil",),
        "identity": ('/x"\nProxyCommand x', "/%d/key"),
        "keys": (("ssh-ed25519 AAAA; x",), ("",)),
        "port": (0, 65536),
    }
    good: dict[str, Any] = {"name": "a1", "user": "ada"}
    assert accepts(partial(Login, **good), problem)
    wrong = [{key: value} for key, values in bad.items() for value in values]
    assert [each for each in wrong if accepts(partial(Login, **{**good, **each}), problem)] == []


def test_facts_that_a_machine_made_up_are_refused() -> None:
    bad: dict[str, tuple[object, ...]] = {
        "head": ("head\nProxyCommand x", None),
        "nodes": (["a1", "%h"], [["a1"]], None),
        "ports": ({"a1": "22; x"}, {"a1": True}, {"a 1": 22}),
        "authorities": ([], ["ssh-ed25519 AAAA\nHost *"], ["ssh-ed25519 $(x)"], 5),
    }
    good = {"head": "head", "nodes": ["a1"], "ports": {"a1": 2222}, "authorities": [AUTHORITY]}
    assert Facts.read(good).nodes == ("a1",)
    wrong = [{**good, key: value} for key, values in bad.items() for value in values]
    assert [each for each in (*wrong, [good]) if accepts(partial(Facts.read, each), "no facts of a cluster")] == []


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a head node."""
    (tmp_path / "names").write_text("100.64.0.1 head\n100.64.0.2 a1\n100.64.0.3 b1\n")
    (tmp_path / "authority").write_text(f"# 7\n{AUTHORITY}\n# leave {LEAVE_KEY}\n")
    for node, port in (("a1", "22"), ("b1", "2222")):
        (tmp_path / "members" / node).mkdir(parents=True)
        (tmp_path / "members" / node / "sshd_port").write_text(f"{port}\n")
    monkeypatch.setattr(ssh_config, "NAMES", tmp_path / "names")
    monkeypatch.setattr(ssh_config, "MEMBERS", tmp_path / "members")
    monkeypatch.setattr(ssh_config, "_AUTHORITIES", tmp_path / "authority")
    monkeypatch.setattr("socket.gethostname", lambda: "head")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return tmp_path


def run(*, head: str | None = None, port: int | None = None, as_json: bool = False) -> int:
    return ssh_config.run(Namespace(head=head, port=port, json=as_json))


def test_programs_get_the_facts_without_the_leave_key(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (head / "members/b1/login").write_text("203.0.113.9 22\n")
    assert run(as_json=True) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {
        "head": "head",
        "nodes": ["a1", "b1"],
        "ports": {"b1": 2222},
        "authorities": [AUTHORITY],
        "logins": {"b1": [22, "203.0.113.9"]},
    }


def test_ssh_config_has_the_reached_address(
    head: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.9 50000 203.0.113.7 2022")
    assert run() == 0
    text = capsys.readouterr().out
    assert "HostName 203.0.113.7\n" in text
    assert "Port 2022\n" in text
    assert run(head="gpu.example.org") == 0
    text = capsys.readouterr().out
    assert "HostName gpu.example.org\n" in text
    assert "Port 2022" not in text


def test_an_unknown_address_is_asked_for(
    head: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for connection, reason in (
        ("", "you did not come by SSH: add --head ADDRESS"),
        ("8.8.8.8 50000 10.0.0.5 22", "the head node's own address 10.0.0.5 is not the one that you reached"),
        ("words", "add --head ADDRESS"),
    ):
        monkeypatch.setenv("SSH_CONNECTION", connection)
        assert run() == 1, connection
        captured = capsys.readouterr()
        assert captured.out == "", connection
        assert reason in captured.err, connection
