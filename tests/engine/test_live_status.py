"""`make status` asks the head node over the connection of the stack's own steps, on a real SSH server."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cli.head.answer import NOW, as_root, over_ssh
from cli.pulumi.workspace import CliError
from cli.run_events import Made
from components.steps.label import StepLabel
from tests.engine.ssh_host import SshHost

URN = "urn:pulumi:dev::tailrack::command:remote:Command::head-prepare"


def made(host: SshHost, machine: str = "head") -> Made:
    way = {"host": "127.0.0.1", "port": host.port, "user": "root", "privateKey": host.private_key}
    way |= {"hostKey": host.host_key, "dialErrorLimit": 1, "perDialTimeout": 5}
    return Made(URN, StepLabel(f"{machine}-prepare", machine, "x").on("true"), connection=way)


def test_the_head_node_is_asked_by_the_way_of_its_own_steps(host: SshHost) -> None:
    node = Made("urn:x", StepLabel("a1-prepare", "a1", "x").on("true"), connection={"host": "192.0.2.1"})
    assert over_ssh([node, made(host)], "head", "echo now") == "now"
    assert [asked.command for asked in host.take()] == ["echo now"]


def test_sudo_gets_the_password_of_the_head_nodes_steps_on_stdin_if_it_asks_for_one(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("id", "echo 1000"), ("sudo", '[ "$1" = -kS ] && read -r word && shift 3 && "$@" "$word"')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    step = replace(made(host), command=made(host).command + " password'", whole_stdin="opens it\n{}")
    assert over_ssh([made(host), step], "head", as_root("echo", "root by")) == "root by opens it"
    assert "opens it" not in "".join(asked.command for asked in host.take())


def test_without_an_ssh_answer_the_error_names_the_command_for_the_head_node(host: SshHost) -> None:
    with pytest.raises(CliError, match="run `tailrack nodes` there"):
        over_ssh([made(host, "other")], "head", NOW)
    with pytest.raises(CliError, match="does not report its present state"):
        over_ssh([made(host)], "head", "echo no controller >&2; exit 1")


def test_the_printed_form_of_a_connection_hides_its_key(host: SshHost) -> None:
    assert host.private_key.splitlines()[1] not in repr(made(host))
