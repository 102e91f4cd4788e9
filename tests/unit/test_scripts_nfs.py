"""Role nfs_exports: who may mount the share, and how a node mounts it."""

from __future__ import annotations

import re

import pytest

from tests.unit.shell import Shell

SERVER = {"NFS_EXPORTS_PATH": "/export/shared"}


def configuration(shell: Shell) -> str:
    done = shell.call("ganesha_configuration", {**SERVER, "HEAD_KERNEL_NFS": "false"}, "nfs_exports/server")
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def export(shell: Shell, member: str, address: str) -> None:
    shell.write(f"etc/exports.d/tailrack-{member}.exports", f"/export/shared {address}/32(rw,sync,root_squash)\n")


def test_without_members_the_share_is_open_to_nobody(shell: Shell) -> None:
    text = configuration(shell)
    assert "CLIENT" not in text
    assert "Access_Type = NONE" in text
    assert "Squash = Root_Squash" in text


def test_each_member_may_mount_from_its_one_address(shell: Shell) -> None:
    export(shell, "b1", "100.64.0.7")
    export(shell, "a1", "100.64.0.3")
    clients = re.findall(r"CLIENT \{ Clients = (\S+); Access_Type = RW; \} # \S+ (\S+)", configuration(shell))
    assert clients == [("100.64.0.3", "tailrack-a1.exports"), ("100.64.0.7", "tailrack-b1.exports")]


def test_the_configuration_is_closed_and_version_4_only(shell: Shell) -> None:
    export(shell, "b1", "100.64.0.7")
    text = configuration(shell)
    code = re.sub(r"#.*", "", text)
    assert code.count("{") == code.count("}") > 3
    assert "Protocols = 4;" in text
    assert "Path = /export/shared; Pseudo = /export/shared;" in text


def test_exports_of_others_and_half_written_files_are_left_out(shell: Shell) -> None:
    shell.write("etc/exports.d/backup.exports", "/export 10.0.0.0/8(rw)\n")
    shell.write("etc/exports.d/tailrack-b1.exports.Xy12ab", "/export/shared 100.64.0.9/32(rw)\n")
    export(shell, "b1", "100.64.0.7")
    assert re.findall(r"Clients = (\S+);", configuration(shell)) == ["100.64.0.7"]


def test_a_changed_member_is_told_to_a_running_server_without_a_restart(shell: Shell) -> None:
    export(shell, "b1", "100.64.0.7")
    apply = {**SERVER, "HEAD_KERNEL_NFS": "false"}
    assert shell.call("apply_exports", apply, "nfs_exports/server").returncode == 0
    export(shell, "b2", "100.64.0.8")
    assert shell.call("apply_exports", apply, "nfs_exports/server").returncode == 0
    assert shell.call("apply_exports", apply, "nfs_exports/server").returncode == 0
    told = [call for call in shell.calls if "HUP" in call or "restart" in call]
    assert told == ["systemctl kill -s HUP nfs-ganesha"] * 2
    assert "100.64.0.8" in shell.path("/etc/ganesha/ganesha.conf").read_text()


def test_a_server_that_does_not_run_is_started(shell: Shell) -> None:
    shell.stub("systemctl", 'case "$*" in *is-active*) exit 3 ;; esac')
    assert shell.call("apply_exports", {**SERVER, "HEAD_KERNEL_NFS": "false"}, "nfs_exports/server").returncode == 0
    assert "systemctl restart nfs-ganesha" in shell.calls


def test_the_kernels_server_is_told_with_exportfs_and_serves_version_4_only(shell: Shell) -> None:
    shell.stub("exportfs")
    assert shell.call("apply_exports", {**SERVER, "HEAD_KERNEL_NFS": "true"}, "nfs_exports/server").returncode == 0
    assert shell.calls[-1] == "exportfs -ra"
    assert shell.path("/etc/nfs.conf.d/tailrack.conf").read_text() == "[nfsd]\nvers3=n\nvers4=y\n"
    assert not shell.path("/etc/ganesha").exists()


# What findmnt shows of a machine: device, the folder of the file system that is mounted, and where.
ROOT = "8:1 / /"
OWN_DISK = "8:16 / {share}"


@pytest.mark.parametrize(
    ("mounts", "own"),
    [
        ([ROOT], False),
        ([ROOT, OWN_DISK], True),
        ([ROOT, OWN_DISK, "8:16 / {mount}"], True),
        ([ROOT, "8:1 /srv/x {share}"], False),
        ([ROOT, "8:16 / {parent}"], False),
        ([ROOT, "8:16 /share {share}", "8:16 / {mount}"], False),
        ([ROOT, "8:16 /share {share}", "8:16 /shared {mount}"], False),
        ([ROOT, "8:16 /share {share}", "8:16 /share/part {mount}"], True),
        (["0:50 / /", "8:16 /volumes/share {share}", "8:16 /containers/hosts {file}"], True),
    ],
    ids=[
        "a folder of the root file system", "a disk", "a disk that is bound elsewhere", "a folder of it bound there",
        "a folder of a disk", "a folder of a disk bound there", "a neighbour of it is mounted",
        "a part of it is mounted", "a container's volume",
    ],
)  # fmt: skip
def test_a_share_is_a_file_system_of_its_own_if_nothing_beyond_it_is_mounted(
    shell: Shell, mounts: list[str], own: bool
) -> None:
    share = shell.root / "export/shared"
    places = {"share": share, "parent": share.parent, "mount": shell.root / "shared", "file": shell.root / "hosts"}
    for name in ("share", "mount"):
        places[name].mkdir(parents=True)
    places["file"].touch()
    table = "\n".join(mounts).format(**places)
    # As findmnt does: with --mountpoint what is mounted there, and its status.
    shell.stub(
        "findmnt",
        f"case $* in *--mountpoint*) grep ' {share}$' <<<'{table}' | cut -d' ' -f1,2 ;; *) echo '{table}' ;; esac",
    )
    done = shell.call("yes_no share_is_a_file_system", {"NFS_EXPORTS_PATH": str(share)}, "nfs_exports/head")
    assert (done.stdout, done.returncode) == (f"{own}\n".lower(), 0), done.stderr


def test_a_node_mounts_by_automount_after_the_tailnet_and_retries_for_ever(shell: Shell) -> None:
    shell.write("sbin/mount.nfs4", "").chmod(0o755)
    shell.stub("systemd-escape", "echo shared")
    mount = {**SERVER, "HEAD_ADDRESS": "100.64.0.1", "NFS_EXPORTS_MOUNT": str(shell.root / "shared")}
    (shell.root / "shared/home").mkdir(parents=True)
    done = shell.call("nfs_exports_node", mount, "nfs_exports/node")
    assert done.returncode == 0, done.stderr
    unit = shell.path("/etc/systemd/system/shared.mount").read_text().splitlines()
    assert "What=100.64.0.1:/export/shared" in unit
    assert "Options=hard,nfsvers=4.2,_netdev" in unit
    assert "Requires=tailrack-tailnet.service" in unit
    assert "StartLimitIntervalSec=0" in unit
    assert "systemctl enable -q shared.automount" in shell.calls
