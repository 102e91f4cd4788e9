"""Lab machines that look like real ones have what breaks programs on real ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from lab.identity import CHECKOUT, container_name, lab_id
from lab.profiles.machine import CLASHING_UID, CLASHING_USER
from tests.lab.cluster import eventually, own_machine

# They are about the lab itself.
LAB = lab_id(CHECKOUT, "like")


@dataclass(frozen=True)
class Machine:
    """One machine: its name in the lab, and how a stack's config would write it."""

    node: str
    host: dict[str, Any]

    def run(self, command: str) -> str:
        """Run a command as root and return its stdout without the last newline; fail when it fails."""
        result = self.attempt(command)
        assert result.returncode == 0, f"{self.node}: {command}\n{result.stdout}\n{result.stderr}"
        return result.stdout.rstrip("\n")

    def attempt(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root, whatever comes of it."""
        words = ["docker", "exec", container_name(LAB, self.node), "timeout", "30", "bash", "-c", command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def reaches(self, address: str) -> bool:
        """Whether the SSH server at an address can be reached from here."""
        return self.attempt(f"timeout 2 bash -c '</dev/tcp/{address}/22'").returncode == 0

    def ssh(self, user: str, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Log in as the product would, with the host key pinned, and run a command."""
        known = folder / "known_hosts"
        known.write_text(f"{self.host['address']} {self.host['host_key']}\n")
        options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
        words = ["ssh", *options, "-i", self.host["private_key_file"], f"{user}@{self.host['address']}", command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def apt_is_locked(self) -> bool:
        """Whether another process has the lock that `apt-get update` takes."""
        return "Could not get lock" in self.attempt("LC_ALL=C apt-get update").stderr


@pytest.fixture(scope="module")
def lab(images: None) -> Iterator[None]:
    """The lab of these tests; whatever they made in it is removed."""
    yield
    lab_commands.clear_away(LAB)


@pytest.fixture(scope="module")
def cloud(lab: None) -> Machine:
    return Machine("c1", own_machine(LAB, "c1", like="cloud", busy=True))


@pytest.fixture(scope="module")
def server(lab: None) -> Machine:
    return Machine("s1", own_machine(LAB, "s1", like="server"))


@pytest.fixture(scope="module")
def desktop(lab: None) -> Machine:
    return Machine("d1", own_machine(LAB, "d1", like="desktop"))


def restart(machine: Machine) -> None:
    """Restart a machine, and wait until its systemd answers."""
    subprocess.run(["docker", "restart", container_name(LAB, machine.node)], check=True, capture_output=True)
    eventually(lambda: machine.attempt("systemctl is-active basic.target").returncode == 0, 60, "the machine is back")


def link_target(machine: Machine, path: str) -> str:
    return machine.run(f"readlink -f {path}")


def test_apt_on_a_busy_new_cloud_machine_is_locked_at_first_contact_and_free_a_minute_later(cloud: Machine) -> None:
    eventually(cloud.apt_is_locked, 10, "apt is locked")
    assert cloud.run("systemctl is-system-running || :") == "starting", "cloud-init is at work still"
    start = time.monotonic()
    eventually(lambda: cloud.run("cloud-init status || :") == "status: done", 60, "cloud-init is done")
    eventually(lambda: not cloud.apt_is_locked(), 60, "apt is free")
    assert time.monotonic() - start > 5, "a lock that is gone at once shows nothing"


def test_a_cloud_machine_is_called_after_its_address_in_a_file_that_cloud_init_keeps(cloud: Machine) -> None:
    name = "ip-" + cloud.host["address"].replace(".", "-")
    assert cloud.run("hostname") == cloud.run("cat /etc/hostname") == name
    assert cloud.run(f"getent hosts {name}").split() == ["127.0.1.1", name, name]
    cloud.run("echo 192.0.2.1 mine >>/etc/hosts")
    restart(cloud)
    eventually(
        lambda: cloud.attempt("grep mine /etc/hosts").returncode == 1, 30, "cloud-init has written the file anew"
    )
    assert cloud.run("hostname") == name


def test_a_cloud_machine_asks_the_stub_of_systemd_resolved(cloud: Machine) -> None:
    assert link_target(cloud, "/etc/resolv.conf") == "/run/systemd/resolve/stub-resolv.conf"
    assert cloud.run("grep ^nameserver /etc/resolv.conf") == "nameserver 127.0.0.53"
    assert "hosts:          files dns" in cloud.run("cat /etc/nsswitch.conf")
    cloud.run("getent hosts control.lab")
    cloud.run("resolvectl query control.lab")


def test_a_cloud_machine_accepts_ubuntu_with_sudo_and_rejects_root(cloud: Machine, tmp_path: Path) -> None:
    assert cloud.host["user"] == "ubuntu"
    assert cloud.ssh("ubuntu", "id -u; sudo -n id -u", tmp_path).stdout.split() == ["1000", "0"]
    assert "Permission denied" in cloud.ssh("root", "id", tmp_path).stderr


def test_cloud_machines_of_a_site_share_a_private_second_network(cloud: Machine, server: Machine) -> None:
    neighbour = Machine("c2", own_machine(LAB, "c2", like="cloud"))
    elsewhere = Machine("c3", own_machine(LAB, "c3", like="cloud", site="shed"))
    address = neighbour.run("ip -json -4 address show eth1 | jq -r .[0].addr_info[0].local")
    assert cloud.reaches(address)
    assert server.reaches(neighbour.host["address"])
    assert not server.reaches(address)
    assert not elsewhere.reaches(address)


def test_a_server_has_no_resolved_and_a_plain_resolv_conf_that_works(server: Machine) -> None:
    restart(server)
    assert link_target(server, "/etc/resolv.conf") == "/etc/resolv.conf"
    assert server.attempt("mountpoint /etc/resolv.conf || systemctl cat systemd-resolved").returncode != 0
    server.run("getent hosts control.lab")
    assert f"address {server.host['address']}/" in server.run("cat /etc/network/interfaces")


def test_a_server_serves_others_already(server: Machine) -> None:
    assert server.run("munge -n | unmunge | grep STATUS").endswith("Success (0)")
    assert "ClusterName=atlas" in server.run("cat /etc/slurm/slurm.conf")
    assert server.run("grep -c ^/srv/projects /etc/exports") == "1"
    assert server.run(f"id -un {CLASHING_UID}") == CLASHING_USER
    assert "sshd" in server.run("fail2ban-client status")


def test_a_desktop_is_in_another_tailnet_and_stays_there(desktop: Machine) -> None:
    def other_tailnet() -> bool:
        status = desktop.attempt("tailscale status --json | jq -r '.BackendState, .MagicDNSSuffix'")
        return status.stdout.split() == ["Running", "other.ts.net"]

    eventually(other_tailnet, 20, "the desktop is in its tailnet")
    restart(desktop)
    eventually(other_tailnet, 20, "the desktop is in its tailnet again")
    assert desktop.run("tailscale debug prefs | jq -r .ControlURL") == "http://control.lab:8082"


def test_a_desktops_names_come_from_resolved_by_its_cable_and_its_tailnet(desktop: Machine) -> None:
    assert desktop.run("hostname") == "d1-desktop"
    assert link_target(desktop, "/etc/resolv.conf") == "/run/systemd/resolve/stub-resolv.conf"
    desktop.run("resolvectl query control.lab")
    desktop.run("resolvectl query d1-desktop.other.ts.net")


def test_a_desktops_owner_logs_in_and_may_do_all(desktop: Machine, tmp_path: Path) -> None:
    assert desktop.ssh(desktop.host["user"], "id -un; sudo -n id -u", tmp_path).stdout.split() == ["maria", "0"]
