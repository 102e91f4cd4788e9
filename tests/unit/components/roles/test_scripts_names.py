"""Role names: the host name, /etc/hosts with the cluster's machines in it, and every other name left as it was."""

import errno
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.roles.network.names import names
from tests.unit.shell import Shell, assert_ok, role_header, script_of

ADDRESS = "100.64.0.7"
NAMES = script_of("names", "join", "node")
LIST = "/var/lib/tailrack/names"
# What the head node has published.
SHARE = "share/.tailrack/names"


def header(shell: Shell) -> dict[str, Any]:
    return {**role_header("names"), "share_mount": "/share"}


def install(shell: Shell) -> subprocess.CompletedProcess[str]:
    return shell.step(NAMES, header(shell))


@pytest.fixture
def machine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A machine called `old-name` that is to be node a1, at ADDRESS in its tailnet."""
    shell.stub("tailscale", f'[ "$1" = ip ] && echo {ADDRESS}')

    def name() -> str:
        return shell.path("name").read_text().rstrip()

    monkeypatch.setattr("components.roles.network.names.host.gethostname", name)

    def uname() -> SimpleNamespace:
        return SimpleNamespace(nodename=name())

    monkeypatch.setattr(names, "uname", uname)
    monkeypatch.setattr(names, "_PAUSE", 0)
    shell.write("name", "old-name\n")
    shell.write("etc/hostname", "old-name\n")
    shell.write("etc/hosts", "127.0.0.1 localhost\n")
    return shell


class Names:
    """The installed program on a machine."""

    def __init__(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shell, self._monkeypatch = shell, monkeypatch

    def update(self, hosts: str) -> str:
        """Run the program on the text of /etc/hosts and return the new text."""
        path = self.shell.write("etc/hosts", hosts)
        done = self.shell.command("names")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return path.read_text()

    def follow(self) -> str:
        """Follow what the head node has published, until tailscaled has ended; return the text of /etc/hosts then."""
        path = self.shell.write("etc/hosts", "127.0.0.1 localhost\n")
        ended = self.shell.command("names", "follow")
        assert ended.returncode != 0, "systemd would not start it again"
        return path.read_text()

    def talk(self, times: int, meanwhile: str = "") -> None:
        """Play a tailscaled that tells of something so many times, and waits each time until it has been looked."""
        root, inputs = self.shell.root, names._inputs

        def look() -> tuple[str, ...]:
            with self.shell.path("looked").open("a") as looked:
                looked.write("x\n")
            return (self.shell.path("address").read_text(), *inputs()[1:])

        self._monkeypatch.setattr(names, "_inputs", look)
        self.shell.write("address", ADDRESS)
        self.shell.write("looked", "")
        self.shell.stub(
            "tailscale",
            f"""case $1 in
            ip) cat "{root}/address" ;;
            debug) for ((number = 1; number <= {times}; number++)); do
                looked=$(wc -l <"{root}/looked")
                {meanwhile}
                printf '{{\n\t"PeersChanged": []\n}}\n'
                until [ "$(wc -l <"{root}/looked")" -gt "$looked" ]; do :; done
            done ;;
            esac""",
        )


@pytest.fixture
def program(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> Names:
    assert_ok(install(machine))
    return Names(machine, monkeypatch)


def test_the_own_name_moves_to_the_tailnet_address_and_the_rest_stays(program: Names) -> None:
    for hosts, expected in (
        ("127.0.0.1 localhost\n", "127.0.0.1 localhost\n"),
        ("127.0.1.1 a1\n", ""),  # Debian's installer writes this line
        ("127.0.1.1\ta1.example.org\ta1\n", "127.0.1.1 a1.example.org\n"),
        ("127.0.0.1 localhost a1 a10 xa1\n", "127.0.0.1 localhost a10 xa1\n"),
        ("10.99.0.2 A1 # a1 by the installer\n", ""),
        ("10.0.0.3\t nas  # as its owner wrote it\n", "10.0.0.3\t nas  # as its owner wrote it\n"),
        ("10.99.0.2 b1 a1 # the b1\n", "10.99.0.2 b1 # the b1\n"),
        ("# 10.0.0.1 a1\n\n::1 ip6-localhost\n", "# 10.0.0.1 a1\n\n::1 ip6-localhost\n"),
        ("  # indented a1\n", "  # indented a1\n"),
        ("10.0.0.9 a1 #\n10.0.0.1 control.lab\n", "10.0.0.1 control.lab\n"),
        (f"{ADDRESS} a1 # tailrack\n", ""),
        ("100.64.0.7 name-of-before # tailrack\n", ""),
        ("100.64.0.99 a1 # tailrack\n127.0.0.1 localhost\n", "127.0.0.1 localhost\n"),  # an address of before
    ):
        assert program.update(hosts) == f"{ADDRESS} a1 # tailrack\n{expected}", hosts


@pytest.mark.parametrize("mount", [True, False])
def test_only_a_mounted_file_is_written_in_place(program: Names, monkeypatch: pytest.MonkeyPatch, mount: bool) -> None:
    rename = os.rename

    def busy(path: Path, to: Path) -> None:
        if to.name == "hosts":
            raise OSError(errno.EBUSY, "Device or resource busy")
        rename(path, to)

    if mount:
        monkeypatch.setattr(os, "rename", busy)  # in a container it is a mount, which cannot be replaced
    path = program.shell.write("etc/hosts", "127.0.1.1 a1\n")
    path.chmod(0o640)
    before = path.stat().st_ino
    assert program.update("127.0.1.1 a1\n") == f"{ADDRESS} a1 # tailrack\n"
    assert (path.stat().st_ino == before) == mount
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in path.parent.glob("*hosts*")) == ["hosts"]


def test_an_existing_name_in_the_hosts_file_keeps_its_address(program: Names) -> None:
    program.shell.write(LIST, "100.64.0.11 b1\n100.64.0.12 b2\n100.64.0.13 b3\n")
    owners = "127.0.0.1 localhost\n10.0.0.8   B1  nas # the rack's\nfd00::8 b2.lan b2\n# 10.0.0.9 b3\n"
    once = program.update(owners)
    assert once == f"{ADDRESS} a1 # tailrack\n100.64.0.13 b3 # tailrack\n{owners}"
    assert program.update(once) == once
    # tailscaled is asked for nothing but the machine's own address.
    assert {call for call in program.shell.calls if call.startswith("tailscale")} == {"tailscale ip -4"}


def test_a_node_reads_only_valid_members_from_the_published_list(program: Names) -> None:
    for line in (
        "100.64.0.3 localhost", "100.64.0.3 ip6-localhost", "100.64.0.3 ip6-anything", "100.64.0.3 broadcasthost",
        "100.64.0.3 localhost6", "127.0.0.1 b7", "10.0.0.3 b7", "100.63.0.3 b7", "100.128.0.3 b7", "100.64.0.300 b7",
        "::1 b7", "fd7a::3 b7", "100.64.0.3 b7 b8", "100.64.0.3 b7.example.org", "100.64.0.3 B7", "100.64.0.3",
        "100.64.0.3 -b7", "100.64.0.3 b7-", "100.64.0.3  b7", "100.64.0.3 b7 # note", f"100.64.0.3 b{'7' * 63}", "",
        "100.64.0.4 head",
    ):  # fmt: skip
        program.shell.write(SHARE, f"100.64.0.1 head\n{line}\n100.127.255.255 b9\n")
        assert program.follow() == (
            f"{ADDRESS} a1 # tailrack\n100.64.0.1 head # tailrack\n100.127.255.255 b9 # tailrack\n127.0.0.1 localhost\n"
        ), line
        assert program.shell.path(LIST).read_text() == "100.64.0.1 head\n100.127.255.255 b9\n", line
        assert program.shell.path(LIST).stat().st_mode & 0o777 == 0o644, "users' ssh asks who is of the cluster"


def test_a_tailscaled_message_without_a_name_change_writes_no_files(program: Names) -> None:
    program.shell.write(SHARE, "100.64.0.1 head\nno member\n")
    program.talk(5)
    # A run that writes asks for the address. After a look that wrote comes one that finds that.
    before = len(program.shell.calls)
    assert " head # tailrack\n" in program.follow()
    assert program.shell.calls[before:].count("tailscale ip -4") == 2


@pytest.mark.parametrize(
    ("meanwhile", "then"),
    [("echo 100.64.0.77 >{root}/address", "100.64.0.77"), ("echo '127.0.1.1 a1' >{root}/etc/hosts", ADDRESS),
     ("echo cloud >{root}/etc/hostname", ADDRESS)],
)  # fmt: skip
def test_names_follow_a_new_address_and_foreign_edits(program: Names, meanwhile: str, then: str) -> None:
    program.talk(4, f'[ "$number" -ne 2 ] || {meanwhile.format(root=program.shell.root)}')
    assert program.follow().startswith(f"{then} a1 # tailrack\n")
    assert program.shell.path("/etc/hostname").read_text() == "a1\n"


def test_while_the_share_is_away_the_names_that_were_read_last_hold(program: Names) -> None:
    program.shell.write(LIST, "100.64.0.11 b1\n")
    assert "100.64.0.11 b1 # tailrack" in program.follow()
    for published in ("", "nonsense\n"):
        program.shell.write(SHARE, published)
        assert "100.64.0.11 b1 # tailrack" in program.follow(), published


def test_names_follow_soon_after_an_early_tailscaled_message(program: Names) -> None:
    program.shell.write(SHARE, "100.64.0.1 head\n")
    program.shell.write("later", "100.64.0.1 head\n100.64.0.11 b1\n")
    hosts = program.shell.path("/etc/hosts")
    program.shell.stub(
        "tailscale",
        f"""case $1 in
            ip) echo {ADDRESS} ;;
            debug) until grep -q head "{hosts}"; do :; done
                cp "{program.shell.root}/later" "{program.shell.root}/{SHARE}"
                until grep -q b1 "{hosts}"; do :; done ;;
        esac""",
    )
    assert " b1 # tailrack\n" in program.follow()


# The head node, which keeps the names.


def test_members_without_a_kept_address_have_their_certificates(machine: Shell) -> None:
    machine.write("var/export/.keep", "")
    machine.write("/var/lib/tailrack/members/b9/signed", "b9,100.64.0.19 ssh-ed25519 AAAA 90\n")
    values = {**header(machine), "share_path": "/var/export", "head_address": ADDRESS}
    assert_ok(machine.step(script_of("names", "join", "head"), values))
    assert machine.path("var/export/.tailrack/names").read_text() == f"{ADDRESS} a1\n100.64.0.19 b9\n"


def test_installing_sets_the_host_name_and_restarts_no_unit_that_slurms_daemons_require(program: Names) -> None:
    shell = program.shell
    assert shell.path("/etc/hosts").read_text() == f"{ADDRESS} a1 # tailrack\n127.0.0.1 localhost\n"
    assert not [call for call in shell.calls if "restart" in call and "tailrack-names.service" in call]
    again = len(shell.calls)
    assert install(shell).returncode == 0
    assert not [call for call in shell.calls[again:] if "restart" in call]
    assert shell.path("/name").read_text() == shell.path("/etc/hostname").read_text() == "a1\n"
    # Somebody sets it back.
    for path in ("name", "etc/hostname"):
        shell.write(path, "old-name\n")
    program.update("127.0.1.1 old-name\n")
    assert shell.path("/name").read_text() == shell.path("/etc/hostname").read_text() == "a1\n"


@pytest.mark.parametrize("cloud", [True, False])
def test_the_step_makes_an_installed_cloud_init_keep_the_host_name(machine: Shell, cloud: bool) -> None:
    if cloud:
        machine.path("/etc/cloud").mkdir()
    assert install(machine).returncode == 0
    file = machine.path("/etc/cloud/cloud.cfg.d/99-tailrack.cfg")
    assert (file.read_text() if file.exists() else None) == ("preserve_hostname: true\n" if cloud else None)


@pytest.mark.parametrize("hosts", ["127.0.0.1 localhost\n127.0.1.1 old-name\n", "127.0.0.1 localhost\n",
                                   "10.0.0.5 old-name.example.org # mine\n"])  # fmt: skip
def test_a_machine_that_leaves_has_its_old_name_and_no_other(program: Names, hosts: str) -> None:
    program.shell.write(LIST, "100.64.0.11 b1\n")
    program.update(hosts)
    assert install(program.shell).returncode == 0, "a second up must not forget the name of before"
    program.shell.stub("tailscale", "exit 1")
    assert program.shell.command("names", "forget").returncode == 0
    own = "127.0.1.1 old-name\n"
    assert program.shell.path("/etc/hosts").read_text() == (hosts if hosts.endswith(own) else hosts + own)
    assert program.shell.path("/name").read_text() == program.shell.path("/etc/hostname").read_text() == "old-name\n"


@pytest.mark.parametrize(("added", "left"), [
    ("", "127.0.1.1 a1.example.org a1\n# IPv6\n::1 ip6-localhost\n"),
    ("10.0.0.9 disk\n", "127.0.1.1 a1.example.org\n# IPv6\n::1 ip6-localhost\n10.0.0.9 disk\n127.0.1.1 a1\n"),
])  # fmt: skip
def test_leaving_restores_the_hosts_file_and_keeps_edits_of_the_owner(program: Names, added: str, left: str) -> None:
    program.shell.write("var/lib/tailrack/host-name-before", "a1\n")
    program.update("127.0.0.1 localhost\n127.0.1.1 a1.example.org a1\n# IPv6\n::1 ip6-localhost\n")
    program.update(program.shell.path("/etc/hosts").read_text() + added)
    assert program.shell.command("names", "forget").returncode == 0
    assert program.shell.path("/etc/hosts").read_text() == f"127.0.0.1 localhost\n{left}"
    assert not program.shell.path("/var/lib/tailrack/hosts-before").exists()
