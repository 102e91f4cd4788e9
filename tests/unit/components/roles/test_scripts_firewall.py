"""Role firewall: which ports a machine closes on its own networks, and which of them others need there."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.node.step.step import Step
from components.roles.network.firewall.ports import HeldPorts, PortHolder, hold_ports
from components.roles.order import holders, roles
from components.roles.role import USERS
from stacks.config import parse
from tests.unit.configs import LAB, MONITORING
from tests.unit.shell import Shell, assert_ok, role_header, script_of


def firewall(shell: Shell, open_ports: Sequence[int] = (), *, here: bool = False) -> None:
    """Run the role's phase as a step, perhaps a local one."""
    values = {**role_header("firewall"), "node_relay_port": "", "node_open_ports": open_ports}
    assert_ok(shell.step(script_of("firewall", "machine"), values, name="a1-node", here=here))


def closed(shell: Shell) -> dict[str, set[str]]:
    """Ports that the rules close, by protocol."""
    text = shell.path("/etc/tailrack/firewall.nft").read_text()
    return {kind: set(ports.split(", ")) for kind, ports in re.findall(r"(tcp|udp) dport \{ (.*) \}.* drop", text)}


def test_ports_of_anothers_nfs_stay_open(shell: Shell) -> None:
    nfs = (111, 2049, 20048)
    for open_ports in ((), (111,), nfs):
        firewall(shell, open_ports)
        rules, expected = closed(shell), {str(port) for port in nfs if port not in open_ports}
        assert rules["tcp"] & {"111", "2049", "20048"} == rules.get("udp", set()) == expected, open_ports
        assert "60001-60999" in rules["tcp"], open_ports


def test_our_ssh_server_is_closed_outside_the_tailnet(shell: Shell) -> None:
    for here, came, closes in ((True, True, True), (False, True, False), (True, False, False)):
        shell.stub("sshd", "echo port 2222")
        shell.write("var/lib/tailrack/packages", "openssh-server\n" if came else "jq\n")
        firewall(shell, here=here)
        assert ("2222" in closed(shell)["tcp"]) == closes, (here, came)


# A cluster with every daemon that listens.
EVERYTHING = {
    **LAB,
    "mlflow": {},
    "monitoring": MONITORING,
}


def test_every_port_of_a_role_has_one_account_that_may_listen_there_or_is_every_users() -> None:
    made = roles(parse(EVERYTHING, base_dir=Path()))
    rows = {str(port): (account, machines) for port, account, machines, _ in holders(made)}
    assert len(rows) == len(holders(made))
    assert rows == {
        **dict.fromkeys(("111", "20048", "6816", "6818"), ("root", "all")),
        **dict.fromkeys(("6817", "6819"), ("slurm", "all")),
        "2049": ("kernel", "all"),
        "9100": ("prometheus", "all"),
        # Programs of users have such ports on the other nodes.
        **dict.fromkeys(("9090", "9093", "3000"), ("dynamic", "head")),
        "5000": ("tailrack-mlflow", "head"),
    }
    free = [port for role in made for port, holder in role.holders.items() if holder.account == USERS]
    assert free == ["60001-60999"]


HOLDERS = [
    PortHolder("6817", "slurm", "all", False), PortHolder("6818", "root", "all", False),
    PortHolder("9090", "dynamic", "head", False), PortHolder("9100", "root", "all", True),
    PortHolder("2049", "kernel", "all", False),
]  # fmt: skip
SLURM = "slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin\n"


def hold(shell: Shell, name: str = "head") -> None:
    """Hold ports on a machine of a name."""
    shell.call(hold_ports, Step(name, "a1-node"), HeldPorts(HOLDERS, "head"))


def held(shell: Shell) -> list[str]:
    return shell.path("/etc/tailrack/ports").read_text().splitlines()[1:]


def test_only_the_account_of_a_held_port_can_answer_from_it_once_it_is_there(shell: Shell) -> None:
    hold(shell)
    assert "6817 0 0" in held(shell)
    shell.write("etc/passwd", SLURM)
    hold(shell)
    assert "6817 64030 64030" in held(shell)
    assert shell.calls.count("systemctl reload-or-restart tailrack-firewall.service") == 2
    rules = shell.path("/etc/tailrack/ports.nft").read_text()
    private = "tcp dport 9100 tcp flags & (syn | ack) == syn meta skuid >= 1000 meta skuid != 61184-65519 drop"
    assert private in rules.partition("!= syn | ack accept")[0]
    assert [line.strip() for line in rules.splitlines() if "tcp sport" in line] == [
        "tcp sport 6817 meta skuid { 0, 64030 } accept",
        "tcp sport 6818 meta skuid { 0 } accept",
        "tcp sport 9090 meta skuid { 0, 61184-65519 } accept",
        "tcp sport 9100 meta skuid { 0 } accept",
        "tcp sport 2049 meta skuid != 0 drop",
        # With an answer that no socket has sent: by cookies the kernel answers for whoever has filled his own queue.
        "tcp sport { 6817, 6818, 9090, 9100 } drop",
    ]


PROJECT = Path(__file__).parents[4]
# `61000 + SLURM_JOB_ID % 4500`, in bash or Python.
OF_A_JOB = re.compile(r"([0-9][0-9_]{3,}) \+ [^\n]*?(?:JOB_ID|job\b)[^\n]*? % ([0-9][0-9_]{2,})")


def test_no_job_number_leads_to_a_port_of_the_cluster() -> None:
    services: dict[str, Any] = {"monitoring": {}, "mlflow": {}, "accounting": {}}
    closed = {
        port
        for role in roles(parse({**LAB, **services}, base_dir=Path()))
        for ports in (*role.ports, *role.udp_ports, *role.fabric_ports)
        for port in range(int(ports.partition("-")[0]), int(ports.rpartition("-")[2]) + 1)
    }
    assert {20048, 60001, 9090, 5000} <= closed
    periods = [
        (path.name, int(first), int(count))
        for folder in ("examples", "components", "docs")
        for path in (PROJECT / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".sh", ".j2", ".md", "")
        for first, count in OF_A_JOB.findall(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert {"nccl.sh", "container_sshd.sh", "train_torchrun.sh", "ranks.py", "ranks", "session.py", "task-prolog"} <= {
        name for name, _, _ in periods
    }
    held = {(name, port) for name, first, count in periods for port in range(first, first + count) if port in closed}
    assert not held
    assert all(first + count <= 65536 for _, first, count in periods)
