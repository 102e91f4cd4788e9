"""Role names: the host name, /etc/hosts with the cluster's machines in it, and every other name left as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.shell import ROLES, Shell, role_header, script_of

ADDRESS = "100.64.0.7"
NAMES = script_of("names", "machine")
PROGRAM = "/usr/local/sbin/tailrack-names"


def peer(name: str, address: str, tag: str = "tag:cluster", domain: str = "lab.ts.net") -> dict[str, Any]:
    """Return a machine as `tailscale status --json` shows it."""
    number = address.rpartition(".")[2]
    return {"DNSName": f"{name}.{domain}.", "Tags": [tag], "TailscaleIPs": [f"fd7a:115c:a1e0::{number}", address]}


def status(*peers: dict[str, Any]) -> str:
    """Return what `tailscale status --json` says on a1."""
    own = peer("a1", ADDRESS)
    return json.dumps({"Self": own, "Peer": {f"nodekey:{number}": one for number, one in enumerate(peers)} or None})


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine called `old-name` whose tailscaled tells what is in the file `tailnet`."""
    shell.write("tailnet", status())
    shell.stub("tailscale", f'if [ "$1" = ip ]; then echo {ADDRESS}; else cat "{shell.root}/tailnet"; fi')
    shell.stub(
        "hostname",
        f"""
        if [ -n "${{1:-}}" ]; then echo "$1" >"{shell.root}/name"; else cat "{shell.root}/name"; fi""",
    )
    shell.write("name", "old-name\n")
    shell.write("etc/hostname", "old-name\n")
    shell.write("etc/hosts", "127.0.0.1 localhost\n")
    return shell


@pytest.fixture
def program(machine: Shell) -> Any:
    """Install the program and give a function that runs it on the text of /etc/hosts and returns the new text."""
    installed = machine.step(NAMES, role_header("names"))
    assert installed.returncode == 0, installed.stderr

    def run(hosts: str) -> str:
        path = machine.write("etc/hosts", hosts)
        done = machine.program(PROGRAM)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return str(path.read_text())

    return run


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("127.0.0.1 localhost\n", "127.0.0.1 localhost\n"),
        ("127.0.1.1 a1\n", ""),  # Debian's installer writes this line
        ("127.0.1.1\ta1.example.org\ta1\n", "127.0.1.1 a1.example.org\n"),
        ("127.0.0.1 localhost a1 a10 xa1\n", "127.0.0.1 localhost a10 xa1\n"),
        ("10.99.0.2 a1 # a1 by the installer\n", ""),
        ("10.99.0.2 b1 a1 # the b1\n", "10.99.0.2 b1 # the b1\n"),
        ("# 10.0.0.1 a1\n\n::1 ip6-localhost\n", "# 10.0.0.1 a1\n\n::1 ip6-localhost\n"),
        ("  # indented a1\n", "  # indented a1\n"),
        ("10.0.0.9 a1 #\n10.0.0.1 control.lab\n", "10.0.0.1 control.lab\n"),
        (f"{ADDRESS} a1 # tailrack\n", ""),
        ("100.64.0.7 name-of-before # tailrack\n", ""),
        ("100.64.0.99 a1 # tailrack\n127.0.0.1 localhost\n", "127.0.0.1 localhost\n"),  # an address of before
    ],
)
def test_the_own_name_moves_to_the_tailnet_address_and_the_rest_stays(program: Any, hosts: str, expected: str) -> None:
    assert program(hosts) == f"{ADDRESS} a1 # tailrack\n{expected}"


def test_a_second_run_writes_nothing(program: Any, shell: Shell) -> None:
    once = program("127.0.0.1 localhost a1\n# a comment\n10.0.0.3 nas\n")
    assert program(once) == once
    path = shell.path("/etc/hosts")
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    assert shell.program(PROGRAM).returncode == 0
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("mount", [True, False])
def test_the_file_is_replaced_and_a_mount_is_written_in_place(program: Any, shell: Shell, mount: bool) -> None:
    if mount:
        shell.stub("mv", "exit 1")  # in a container it is a mount, which cannot be replaced
    path = shell.write("etc/hosts", "127.0.1.1 a1\n")
    path.chmod(0o640)
    before = path.stat().st_ino
    assert program("127.0.1.1 a1\n") == f"{ADDRESS} a1 # tailrack\n"
    assert (path.stat().st_ino == before) == mount
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in path.parent.glob("hosts*")) == ["hosts"]


def test_every_machine_of_the_cluster_has_its_line_and_nobody_else_of_the_tailnet(program: Any, shell: Shell) -> None:
    machines = [
        peer("b2", "100.64.0.12"),
        peer("b1", "100.64.0.11"),
        peer("laptop", "100.64.0.3", tag="tag:people"),
        peer("shared-in", "100.64.0.4", domain="other.ts.net"),
        {"DNSName": "phone.lab.ts.net.", "TailscaleIPs": ["100.64.0.5"]},
        {"DNSName": "b3.lab.ts.net.", "Tags": ["tag:cluster"], "TailscaleIPs": None},
    ]
    shell.write("tailnet", status(*machines))
    assert program("127.0.0.1 localhost\n10.0.0.8 b1 nas\n") == (
        f"{ADDRESS} a1 # tailrack\n100.64.0.11 b1 # tailrack\n100.64.0.12 b2 # tailrack\n"
        "127.0.0.1 localhost\n10.0.0.8 nas\n"
    )


def test_a_machine_that_left_the_tailnet_has_no_line_any_more(program: Any, shell: Shell) -> None:
    shell.write("tailnet", status(peer("b1", "100.64.0.11")))
    with_b1 = program("127.0.0.1 localhost\n")
    assert " b1 " in with_b1
    shell.write("tailnet", status())
    assert program(with_b1) == f"{ADDRESS} a1 # tailrack\n127.0.0.1 localhost\n"


def test_names_follow_what_tailscaled_tells(program: Any, shell: Shell) -> None:
    """The tailnet gets another machine while the program listens; then tailscaled ends, and so does the program."""
    shell.write("later", status(peer("b1", "100.64.0.11")))
    shell.stub(
        "tailscale",
        f"""case $1 in
            ip) echo {ADDRESS} ;;
            status) cat "{shell.root}/tailnet" ;;
            debug) until grep -q a1 "{shell.path("/etc/hosts")}"; do :; done
                cp "{shell.root}/later" "{shell.root}/tailnet"; printf '{{\n\t"PeersChanged": []\n}}\n' ;;
        esac""",
    )
    shell.stub("sleep")
    path = shell.write("etc/hosts", "127.0.0.1 localhost\n")
    ended = shell.program(PROGRAM, "follow")
    assert ended.returncode != 0, "systemd would not start it again"
    assert path.read_text() == f"{ADDRESS} a1 # tailrack\n100.64.0.11 b1 # tailrack\n127.0.0.1 localhost\n"


def test_the_host_name_is_the_nodes_and_is_set_again_when_somebody_set_it_back(program: Any, shell: Shell) -> None:
    assert shell.path("/name").read_text() == shell.path("/etc/hostname").read_text() == "a1\n"
    shell.write("name", "old-name\n")
    shell.write("etc/hostname", "old-name\n")
    program("127.0.1.1 old-name\n")
    assert shell.path("/name").read_text() == shell.path("/etc/hostname").read_text() == "a1\n"


@pytest.mark.parametrize("cloud", [True, False])
def test_cloud_init_is_told_to_keep_the_host_name_where_it_is_installed(machine: Shell, cloud: bool) -> None:
    if cloud:
        machine.path("/etc/cloud").mkdir()
    assert machine.step(NAMES, role_header("names")).returncode == 0
    file = machine.path("/etc/cloud/cloud.cfg.d/99-tailrack.cfg")
    assert (file.read_text() if file.exists() else None) == ("preserve_hostname: true\n" if cloud else None)


def test_names_come_after_cloud_init_has_written_its_file(program: Any, shell: Shell) -> None:
    unit = shell.path("/etc/systemd/system/tailrack-names.service").read_text()
    (after,) = [line for line in unit.splitlines() if line.startswith("After=")]
    assert {"cloud-init.service", "cloud-init-network.service"} < set(after.removeprefix("After=").split())


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 old-name\n", "127.0.0.1 localhost\n127.0.1.1 old-name\n"),
        ("127.0.0.1 localhost\n", "127.0.0.1 localhost\n127.0.1.1 old-name\n"),
        ("10.0.0.5 old-name.example.org # mine\n", "10.0.0.5 old-name.example.org # mine\n127.0.1.1 old-name\n"),
    ],
)
def test_a_machine_that_leaves_is_called_as_before_and_has_no_name_of_the_cluster(
    program: Any, shell: Shell, hosts: str, expected: str
) -> None:
    shell.write("tailnet", status(peer("b1", "100.64.0.11")))
    program(hosts)
    assert shell.step(NAMES, role_header("names")).returncode == 0, "a second up must not forget the name of before"
    shell.stub("tailscale", "exit 1")
    assert shell.program(PROGRAM, "forget").returncode == 0
    assert shell.path("/etc/hosts").read_text() == expected
    assert shell.path("/name").read_text() == shell.path("/etc/hostname").read_text() == "old-name\n"


def test_installing_runs_the_program_and_restarts_no_unit_that_slurms_daemons_require(
    program: Any, shell: Shell
) -> None:
    assert shell.path("/etc/hosts").read_text() == f"{ADDRESS} a1 # tailrack\n127.0.0.1 localhost\n"
    assert not [call for call in shell.calls if "restart" in call and "tailrack-names.service" in call]
    again = len(shell.calls)
    assert shell.step(NAMES, role_header("names")).returncode == 0
    assert not [call for call in shell.calls[again:] if "restart" in call]


def test_no_neighbour_is_asked_for_a_name_that_no_machine_has(program: Any, shell: Shell) -> None:
    assert "LLMNR=no" in shell.path("/etc/systemd/resolved.conf.d/tailrack.conf").read_text().splitlines()


def test_nothing_is_written_for_a_resolver_that_is_not_there(machine: Shell) -> None:
    machine.stub("systemctl", 'case "$*" in *resolved*) exit 1 ;; esac')
    assert machine.step(NAMES, role_header("names")).returncode == 0
    assert not list(machine.path("/etc").rglob("*resolv*"))


def test_no_role_installs_a_resolver_which_would_take_the_machines_own() -> None:
    wanted = {package for role in ROLES for packages in role.packages.values() for package in packages}
    assert "jq" in wanted
    assert not wanted & {"systemd-resolved", "libnss-resolve", "resolvconf", "openresolv", "dnsmasq"}


def test_the_program_is_bash_that_stops_at_an_error(program: Any, shell: Shell) -> None:
    shell.stub("tailscale", "exit 1")
    path = shell.write("etc/hosts", "127.0.0.1 localhost a1\n")
    assert shell.program(PROGRAM).returncode != 0
    assert path.read_text() == "127.0.0.1 localhost a1\n"
