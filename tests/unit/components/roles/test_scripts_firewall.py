"""Role firewall: which ports a machine closes on its own networks, and which of them others need there."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from components.roles.role import Value
from components.steps.command_line import render_script
from tests.unit.shell import Shell, role_header, script_of


def firewall(shell: Shell, open_ports: Sequence[int] = (), words: Sequence[str] = ("up",)) -> None:
    """Run the role's phase as a step; the second of the words says that it is a local one."""
    script = script_of("firewall", "machine")
    own = {"HOST_NAME": "a1", "STEP_NAME": "a1-node", "STEP_LOCK": "", "STEP_REPAIR": ""}
    known: dict[str, Value] = {**role_header("firewall"), "NODE_RELAY_PORT": "", "NODE_OPEN_PORTS": open_ports, **own}
    done = shell.run(render_script(script, {name: known[name] for name in script.reads | own.keys()}), *words)
    assert done.returncode == 0, done.stderr


def closed(shell: Shell) -> dict[str, set[str]]:
    """Ports that the rules close, by protocol."""
    text = shell.path("/etc/tailrack/firewall.nft").read_text()
    return {kind: set(ports.split(", ")) for kind, ports in re.findall(r"(tcp|udp) dport \{ (.*) \}.* drop", text)}


def test_datagrams_are_dropped_where_a_daemon_of_the_cluster_may_take_them_and_nowhere_else(shell: Shell) -> None:
    firewall(shell)
    rules = closed(shell)
    assert {"60001-60999", "2049"} <= rules["tcp"]
    # 60001-60999 are mosh's as well, whose sessions are datagrams.
    assert rules["udp"] == {"111", "2049", "20048"}


@pytest.mark.parametrize(
    ("open_ports", "tcp", "udp"),
    [((), {"111", "2049", "20048"}, {"111", "2049", "20048"}), ((111,), {"2049", "20048"}, {"2049", "20048"}),
     ((111, 2049, 20048), set(), set())],
)  # fmt: skip
def test_a_machine_with_nfs_of_others_keeps_the_ports_open_that_it_needs(
    shell: Shell, open_ports: Sequence[int], tcp: set[str], udp: set[str]
) -> None:
    firewall(shell, open_ports)
    rules = closed(shell)
    assert rules["tcp"] & {"111", "2049", "20048"} == tcp
    assert "60001-60999" in rules["tcp"]
    assert rules.get("udp", set()) == udp


@pytest.mark.parametrize(("here", "came", "closes"), [(1, 1, True), (0, 1, False), (1, 0, False)])
def test_an_ssh_server_that_came_with_the_cluster_to_its_operators_machine_is_closed_but_on_the_tailnet(
    shell: Shell, here: int, came: int, closes: bool
) -> None:
    shell.stub("sshd", "echo port 2222")
    shell.write("var/lib/tailrack/packages", "openssh-server\n" if came else "jq\n")
    firewall(shell, words=("up", "here") if here else ("up",))
    assert ("2222" in closed(shell)["tcp"]) == closes
