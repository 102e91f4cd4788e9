"""A pod of the lab lacks what a provider's pod lacks, and keeps only /workspace when it is replaced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from lab.identity import CHECKOUT, container_name, lab_id
from tests.lab.cluster import eventually, own_machine, recreate_pod, start_pod, stop_pod

# They are about the lab itself.
LAB = lab_id(CHECKOUT, "pod")


@pytest.fixture(scope="module")
def pod(images: None) -> Iterator[dict[str, Any]]:
    """One pod, as a host of a stack's config."""
    yield own_machine(LAB, "p1", like="pod")
    lab_commands.clear_away(LAB)


def run(command: str) -> str:
    """Run a command as root in the pod and return its stdout without the last newline; fail when it fails."""
    words = ["docker", "exec", container_name(LAB, "p1"), "timeout", "30", "bash", "-c", command]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout.rstrip("\n")


def fails(command: str) -> bool:
    """Return whether a command fails in the pod."""
    words = ["docker", "exec", container_name(LAB, "p1"), "timeout", "30", "bash", "-c", command]
    return subprocess.run(words, capture_output=True, check=False).returncode != 0


def ssh(host: dict[str, Any], command: str, folder: Path) -> str:
    """Log in as the product does, with the host key pinned, and return the output of a command."""
    known = folder / "known_hosts"
    known.write_text(f"[{host['address']}]:{host['port']} {host['host_key']}\n")
    options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    words = ["ssh", *options, "-i", host["private_key_file"], "-p", str(host["port"])]
    words += [f"{host['user']}@{host['address']}", command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_root_logs_in_at_a_mapped_port_of_an_address_that_is_not_the_pods_own(
    pod: dict[str, Any], tmp_path: Path
) -> None:
    assert pod["user"] == "root"
    assert pod["port"] != 22
    assert ssh(pod, "id -u", tmp_path) == "0\n"
    assert pod["address"] not in run("hostname -I").split()


def test_a_pod_has_dockers_default_capabilities_and_seccomp_filter(pod: dict[str, Any]) -> None:
    status = dict(line.split(":\t", 1) for line in run("cat /proc/self/status").splitlines())
    assert status["CapEff"] == "00000000a80425fb"
    assert status["Seccomp"] == "2"
    assert fails("unshare -U true")
    assert fails("mount -t tmpfs none /mnt")


def test_a_pod_has_neither_systemd_nor_devices_nor_cgroups_to_write_in(pod: dict[str, Any]) -> None:
    assert run("cat /proc/1/comm") == "sleep"
    for command in ("command -v systemctl", "ls /dev/net/tun", "ls /dev/fuse", "mkdir /sys/fs/cgroup/memory/x"):
        assert fails(command), command
    assert "/etc/hosts" in run("cat /proc/mounts"), "Docker has mounted its own"
    assert fails("mv /etc/hostname /etc/hosts"), "a mount cannot be replaced"


def test_a_pod_sees_the_memory_of_its_host_and_may_use_less(pod: dict[str, Any]) -> None:
    paths = "/sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"
    assert int(run(f"cat {paths} 2>/dev/null || true")) == 4 * 2**30


def test_a_stopped_pod_starts_with_its_disk_and_its_port(pod: dict[str, Any]) -> None:
    run("touch /root/installed")
    stop_pod(LAB, "p1", "rack")
    again = start_pod(LAB, "p1", "rack")
    assert (again["port"], again["host_key"]) == (pod["port"], pod["host_key"])
    run("ls /root/installed")


def test_a_replaced_pod_keeps_its_workspace_alone_and_runs_the_clusters_boot_program(pod: dict[str, Any]) -> None:
    run("touch /root/installed && mkdir -p /workspace/.tailrack")
    run("printf '#!/bin/sh\\ntouch /root/booted\\n' >/workspace/.tailrack/boot && chmod 755 /workspace/.tailrack/boot")
    name = run("hostname")
    again = recreate_pod(LAB, "p1", "rack")
    assert again["port"] != pod["port"]
    assert again["host_key"] != pod["host_key"]
    assert run("hostname") != name
    eventually(lambda: not fails("ls /root/booted"), 10, "the boot program runs")
    assert fails("ls /root/installed")
