"""`make status` asks the head node over the connection of the stack's own steps, on a real SSH server."""

from __future__ import annotations

import pytest

from cli.output.live_status import NOW, over_ssh
from cli.pulumi.workspace import CliError
from cli.run_events import Made
from components.steps.label import StepLabel
from tests.engine.ssh_host import SshHost

URN = "urn:pulumi:dev::tailrack::command:remote:Command::head-check"


def made(host: SshHost, machine: str = "head") -> Made:
    way = {"host": "127.0.0.1", "port": host.port, "user": "root", "privateKey": host.private_key}
    way |= {"hostKey": host.host_key, "dialErrorLimit": 1, "perDialTimeout": 5}
    return Made(URN, StepLabel(f"{machine}-check", machine, "x").on("true"), connection=way)


def test_the_head_node_is_asked_by_the_way_of_its_own_steps(host: SshHost) -> None:
    node = Made("urn:x", StepLabel("a1-check", "a1", "x").on("true"), connection={"host": "192.0.2.1"})
    assert over_ssh([node, made(host)], "head", "echo now") == "now"
    assert [asked.command for asked in host.take()] == ["echo now"]


def test_without_an_ssh_answer_the_error_names_the_command_for_the_head_node(host: SshHost) -> None:
    with pytest.raises(CliError, match="run `tailrack nodes` there"):
        over_ssh([made(host, "other")], "head", NOW)
    with pytest.raises(CliError, match="does not report its present state"):
        over_ssh([made(host)], "head", "echo no controller >&2; exit 1")


def test_the_printed_form_of_a_connection_hides_its_key(host: SshHost) -> None:
    assert host.private_key.splitlines()[1] not in repr(made(host))
