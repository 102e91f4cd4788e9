"""Role names: a machine's own name means its tailnet address, and every other name is left as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.shell import Shell, role_header, script_of

ADDRESS = "100.64.0.7"
NAMES = script_of("names", "machine")
PROGRAM = "/usr/local/sbin/tailrack-names"


@pytest.fixture
def program(shell: Shell) -> Any:
    """Install the program and give a function that runs it on the text of /etc/hosts and returns the new text."""
    shell.stub(
        "tailscale", f'if [ "$1" = ip ]; then echo {ADDRESS}; else echo \'{{"MagicDNSSuffix":"lab.ts.net"}}\'; fi'
    )
    shell.stub("resolvectl")
    shell.write("etc/hosts", "127.0.0.1 localhost\n")
    installed = shell.step(NAMES, role_header("names"))
    assert installed.returncode == 0, installed.stderr

    def run(hosts: str) -> str:
        path = shell.write("etc/hosts", hosts)
        done = shell.program(PROGRAM)
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


def test_the_file_is_written_in_place(program: Any, shell: Shell) -> None:
    path = shell.write("etc/hosts", "127.0.1.1 a1\n")
    before = path.stat().st_ino
    program("127.0.1.1 a1\n")
    assert path.stat().st_ino == before  # in a container it is a mount, which cannot be replaced


def test_the_tailnets_resolver_is_asked_for_names_of_the_tailnet_only(program: Any, shell: Shell) -> None:
    program("127.0.0.1 localhost\n")
    assert shell.calls[-3:] == [
        "resolvectl dns tailscale0 100.100.100.100",
        "resolvectl domain tailscale0 lab.ts.net",
        "resolvectl default-route tailscale0 no",
    ]


def test_installing_runs_the_program_and_restarts_no_unit_that_slurms_daemons_require(
    program: Any, shell: Shell
) -> None:
    assert shell.path("/etc/hosts").read_text() == f"{ADDRESS} a1 # tailrack\n127.0.0.1 localhost\n"
    assert not [call for call in shell.calls if "restart" in call and "tailrack-names" in call]
    assert "LLMNR=no" in shell.path("/etc/systemd/resolved.conf.d/tailrack.conf").read_text().splitlines()


def test_the_program_is_bash_that_stops_at_an_error(program: Any, shell: Shell) -> None:
    shell.stub("tailscale", "exit 1")
    path = shell.write("etc/hosts", "127.0.0.1 localhost a1\n")
    assert shell.program(PROGRAM).returncode != 0
    assert path.read_text() == "127.0.0.1 localhost a1\n"
