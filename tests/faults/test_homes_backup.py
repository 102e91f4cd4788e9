"""Users' homes in the backup of the head node: saved, left out if they are too large, restored with the head node.

Machines of one's own: a head node, a node, and a machine that keeps the backups. The tests run in this order.
"""

import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.test_backup import RESTIC
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.vault import open_vault

FOLDER = "/srv/backups"
HOME = "/export/shared/home/ada"
SAVE = "systemctl start tailrack-backup-homes"


@dataclass
class Machines:
    """The stack, and its head node in the config."""

    cluster: ClusterUnderTest
    head: dict[str, Any]


@pytest.fixture(scope="module")
def machines(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """A cluster whose backups contain the homes."""
    made = make_cluster("homes")
    head, node, vault = (own_machine(made.lab, name) for name in ("head", "n1", "vault"))
    made.use_machines({"name": "rack", "fabric": "tailnet", "hosts": [head, node]})
    made.config["tailrack:accounting"] = {"enabled": False}
    made.config["tailrack:backup"] = open_vault(made, vault, FOLDER, tmp_path_factory.mktemp("key")) | {
        "homes": {"max_gb": 1, "exclude": [".cache", "*.ckpt"]}
    }
    made.up_ok()
    return Machines(made, head)


def ended(lab: ClusterUnderTest) -> None:
    """Wait for the backup of homes that follows each backup of the head node."""
    state = "systemctl is-active tailrack-backup-homes"
    eventually(lambda: lab.attempt("head", state).stdout.strip() != "activating", 60, "homes are not being saved")


def save(lab: ClusterUnderTest) -> None:
    """Save the homes as they are now: a run that has begun may have read them before."""
    ended(lab)
    lab.run("head", SAVE)


def test_the_backup_of_homes_omits_excluded_files_and_follows_no_link(machines: Machines) -> None:
    lab = machines.cluster
    files = "mkdir -p .cache paper; echo junk >.cache/junk; echo text >paper/text; echo big >paper/a.ckpt"
    # A file with holes counts with its size on the disk.
    lab.run_as("ada", "head", "truncate -s 2G sparse")
    lab.run_as("ada", "head", f"{files}; chmod 640 paper/text; ln -s /etc/munge outside")
    lab.run_as("ada", "head", "ln -s /etc/shadow paper/shadow")
    save(lab)
    assert {"paper/text", "outside", "paper/shadow"} <= names(lab)
    assert not [name for name in names(lab) if ".cache" in name or name.endswith(".ckpt") or "munge.key" in name]
    assert "\nhomes: the last backup is 0 minutes old" in lab.run("head", "tailrack-backup status")


def names(lab: ClusterUnderTest) -> set[str]:
    """Return the files in the last backup of ada's home."""
    paths = lab.run("head", f"{RESTIC} /etc/tailrack/backup ls --tag tailrack-homes,home-ada latest").splitlines()
    return {path.removeprefix("/homes/ada/") for path in paths}


def test_restic_sees_nothing_but_the_home_that_it_saves(machines: Machines) -> None:
    lab = machines.cluster
    ended(lab)
    seen, restic = "/var/cache/tailrack-backup/seen", "/usr/bin/restic"
    look = "cat /etc/shadow /proc/1/root/etc/shadow /export/shared/home/ada/paper/text; ls /etc/munge; ls /homes"
    script = f'case "$*" in *home-ada*) {{ {look}; cat /homes/ada/paper/text; }} >{seen} 2>/dev/null ;; esac'
    lab.run("head", f"mv {restic} {restic}.real; cat >{restic} <<'END'\n#!/bin/sh\n{script}\nEND\nchmod 755 {restic}")
    try:
        lab.run("head", SAVE)
        assert lab.run("head", f"cat {seen}; rm {seen}") == "ada\ntext\n"
    finally:
        lab.run("head", f"mv {restic}.real {restic}")


def test_homes_that_are_too_large_are_left_out_and_the_head_node_is_saved_all_the_same(machines: Machines) -> None:
    lab = machines.cluster
    lab.run_as("ada", "head", "fallocate -l 1100M paper/large")
    ended(lab)
    assert lab.attempt("head", SAVE).returncode != 0
    lab.run("head", "systemctl start tailrack-backup")
    said = lab.run("head", "tailrack-backup status")
    assert said.startswith("backup: the last one is 0 minutes old")
    assert "FAILED: LEFT OUT: ada (1.2 GB): the homes have 1.2 GB, more than tailrack:backup.homes.max_gb (1)" in said
    ended(lab)
    lab.run_as("ada", "head", "mv paper/large paper/large.ckpt")
    save(lab)
    assert "homes: the last backup is 0 minutes old" in lab.run("head", "tailrack-backup status")


def test_a_new_head_node_has_the_users_files_again_with_their_owners(machines: Machines) -> None:
    lab = machines.cluster
    lab.run("head", "systemctl start tailrack-backup")
    ended(lab)
    # The share's disk is lost too.
    for command in (("rm", "-f", "-v"), ("volume", "rm")):
        name = lab.container("head") + ("-export" if "volume" in command else "")
        subprocess.run(["docker", *command, name], check=True, capture_output=True)
    machines.head.update(own_machine(lab.lab, "head"))
    lab.config["tailrack:sites"][0]["hosts"][0] = machines.head
    lab.config["tailrack:head"]["restore_from"] = "latest"
    lab.config["tailrack:allow"] = ["head-replaced"]
    lab.up_ok()
    assert lab.run_as("ada", "head", "srun -w n1 cat paper/text") == "text\n"
    assert lab.run("head", f"stat -c '%U %a' {HOME} {HOME}/paper/text; readlink {HOME}/outside").split() == [
        *("ada", "700", "ada", "640"),
        "/etc/munge",
    ]
    assert (
        lab.attempt("head", f"ls -d {HOME}/.cache {HOME}/paper/large.ckpt /export/shared/.tailrack-homes").stdout == ""
    )


def test_taken_out_of_the_config_homes_are_no_longer_saved(machines: Machines) -> None:
    lab = machines.cluster
    del lab.config["tailrack:backup"]["homes"], lab.config["tailrack:head"]["restore_from"]
    lab.up_ok()
    assert "homes" not in lab.run("head", "tailrack-backup status")
    assert lab.attempt("head", "ls /etc/systemd/system/tailrack-backup-homes.service").returncode != 0
