"""A machine that serves another cluster: refused with all that it has of it, or taken over with a backup of that."""

import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from components.node.step.step import Step
from components.roles.base.foreign_cluster.host import put_back
from components.roles.role import Value
from components.roles.slurm.munge.host import JoinValues, check
from components.roles.slurm.munge.host import join as munge_join
from components.roles.slurm.slurm.folders import set_foreign_slurm_aside
from components.roles.storage.share.ganesha import ensure_ganesha
from components.roles.storage.share.kernel_server import ensure_kernel_server
from components.roles.storage.share.mount import note_units
from components.steps.composition import CHECK, compose
from tests.unit.shell import ROLES, Shell, assert_ok, script_of

NAMES = ("munge", "users", "share", "slurm", "foreign_cluster")
LOOK = compose([role for role in ROLES if role.name in NAMES], CHECK)
KEY = "the cluster's key"
KEPT = "/var/lib/tailrack/backup/etc/munge/munge.key"
ATLAS = "# the old one\nClusterName=atlas\n"


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine without anything of Slurm's."""
    shell.stub("id", "exit 1")
    shell.stub("apt-cache", 'shift; printf "%s:\\n  Candidate: 24.11.5-4\\n" "$@"')
    shell.stub("dpkg-query", "exit 1")
    shell.stub("modprobe", "exit 1")
    shell.write("proc/filesystems", "ext4\n")
    return shell


def look(shell: Shell, *, take_over: bool = False, users: str = "ada 6001 6001") -> subprocess.CompletedProcess[str]:
    values: dict[str, Value] = {
        "node_take_over": take_over,
        "users_lines": users.split("; "),
        "munge_cluster": "lab",
        "share_mount": "/nowhere/shared",
        "share_path": "/nowhere/export",
        "share_node": "",
    }
    return shell.step(LOOK, values, name="s1-prepare")


def of_others(shell: Shell) -> tuple[Path, Path]:
    """Write a munge key and a slurm.conf of another cluster."""
    return shell.write("etc/munge/munge.key", "theirs\n"), shell.write("etc/slurm/slurm.conf", ATLAS)


def backup(shell: Shell, path: str) -> Path:
    return shell.path(f"/var/lib/tailrack/backup{shell.path(path)}")


# The gate


def test_a_machine_of_another_cluster_is_refused_with_all_that_it_has_of_it_and_the_way_out(machine: Shell) -> None:
    paths = of_others(machine)
    done = look(machine)
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.replace(str(machine.root), "")
    assert (
        "this machine serves another cluster: it has a munge key (/etc/munge/munge.key), "
        "/etc/slurm/slurm.conf of cluster atlas\n"
    ) in said
    assert "\nnext: remove a1 from the config; or, if these are no longer needed, set take_over: true" in said
    assert [path.read_text() for path in paths] == ["theirs\n", ATLAS]
    assert not machine.path("/var/lib/tailrack/backup").exists()


def test_a_head_nodes_own_nfs_server_is_named_unless_it_is_as_the_package_brings_it(machine: Shell) -> None:
    conf = machine.write("etc/ganesha/ganesha.conf", "EXPORT { Path = /srv; }\n")
    assert "an NFS server's configuration (/etc/ganesha/ganesha.conf)" in look(machine).stderr
    machine.stub("dpkg-query", f"printf ' {machine.path('/etc/ganesha/ganesha.conf')} '; md5sum <'{conf}'")
    assert look(machine).returncode == 0
    machine.stub("dpkg-query", "exit 1")
    conf.write_text("# Written by tailrack from /etc/exports.d\n")
    assert look(machine).returncode == 0


def test_anothers_ganesha_is_set_aside_and_the_packages_file_comes_back_when_the_machine_leaves(machine: Shell) -> None:
    conf = machine.write("etc/ganesha/ganesha.conf", "EXPORT { Path = /srv; }\n")
    machine.call(ensure_ganesha, "/export/shared")
    assert kept(machine, "/etc/ganesha/ganesha.conf").read_text() == "EXPORT { Path = /srv; }\n"
    conf.write_text("# as the package brings it")
    machine.stub("dpkg-query", f"printf ' {conf} '; md5sum <'{conf}'")
    with machine.here():
        for _ in range(2):
            ensure_ganesha("/export/shared")
    assert conf.read_text().startswith("# Written by tailrack")
    leave(machine)
    assert conf.read_text() == "# as the package brings it"
    assert [path.name for path in conf.parent.iterdir()] == ["ganesha.conf"]


HOME = "/nowhere/shared/home/ada"


def test_an_account_that_clashes_or_has_another_home_is_not_taken_for_a_users(machine: Shell) -> None:
    for line, problem in (
        ("carol:x:6001:6001:::", "uid 6001 is carol here and should be ada"),
        ("ada:x:1007:1007:::", "user ada has uid 1007 here and should have 6001"),
        ("root:x:0:0:::", ""),
        ("ada:x:6001:6001:::", ""),
        (f"ada:x:6001:6001::{HOME}:/bin/bash", ""),
        ("ada:x:6001:6001:Ada:/home/ada:/bin/bash", "user ada is an existing account here, with the home /home/ada"),
        (f"ada:x:6001:100::{HOME}:/bin/bash", "user ada has gid 100 here and should have 6001"),
    ):
        machine.write("/etc/passwd", f"{line}\n")
        done = look(machine)
        assert (done.returncode == 0) == (not problem), done.stderr
        assert problem in done.stderr, line
        assert "cannot be an account that a1 already has" in done.stderr or not problem, line


# Taking over


def join(shell: Shell, key: str = KEY, cluster: str = "lab") -> None:
    shell.call(munge_join, Step("s1", "s1-prepare"), JoinValues(cluster, "1", key))


@pytest.fixture
def munge(machine: Shell) -> Shell:
    """A machine that has munge's package."""
    machine.stub("id", "echo 108")
    machine.stub("dpkg-query", "echo munge installed")
    machine.stubs("munge", "unmunge")
    return machine


def test_anothers_munge_key_is_kept_for_root_alone_before_ours_takes_its_place(munge: Shell) -> None:
    of_others(munge)
    join(munge)
    assert munge.path("/etc/munge/munge.key").read_text() == f"{KEY}\n"
    assert munge.path(KEPT).read_text() == "theirs\n"
    assert munge.path("/var/lib/tailrack/backup").stat().st_mode & 0o777 == 0o700
    assert "systemctl restart munge" in munge.calls


def test_a_key_that_was_written_here_is_known_again_by_its_digest_after_a_rotation_too(munge: Shell) -> None:
    for key in (KEY, "the next one", "the next one"):
        join(munge, key)
        assert look(munge).returncode == 0
    assert not munge.path("/var/lib/tailrack/backup").exists()
    digests = munge.path("/var/lib/tailrack/munge.digests")
    assert digests.stat().st_mode & 0o777 == 0o600
    known = [sha256(text.encode()).hexdigest() for text in (f"{KEY}\n", "the next one\n")]
    assert digests.read_text() == f"{known[0]} lab\n{known[1]} lab\n"


def test_a_machine_that_is_in_another_cluster_of_the_same_making_is_refused(munge: Shell) -> None:
    join(munge, cluster="other")
    assert "it has a munge key" in look(munge).stderr
    assert look(munge, take_over=True).returncode == 0


@pytest.mark.parametrize("link", [False, True])
def test_a_key_is_read_as_munge_and_a_link_is_none(munge: Shell, monkeypatch: pytest.MonkeyPatch, link: bool) -> None:
    monkeypatch.setattr("components.roles.slurm.munge.host.files.owner_of", lambda _: "munge")
    key = munge.write("/root/theirs" if link else "/etc/munge/munge.key", "theirs\n")
    if link:
        munge.write("/etc/munge/x", "").with_name("munge.key").symlink_to(key)
    step = Step("s1", "s1-prepare")
    munge.call(check, step, "lab")
    assert step.foreign == ([] if link else ["a munge key (/etc/munge/munge.key)"])
    assert any(call.startswith("runuser -u munge -- find ") for call in munge.calls)


def test_the_key_is_there_before_the_package_that_would_make_one(machine: Shell) -> None:
    key = machine.path("/etc/munge/munge.key")
    (machine.root / "usr/sbin").mkdir(parents=True)
    machine.stub("dpkg-query", f'[ -e "{machine.root}/done" ] && echo munge installed')
    machine.stub("dpkg")
    machine.stub("apt-get", f'case "$*" in *install*) cp "{key}" "{machine.root}/done" ;; esac')
    machine.stubs("munge", "unmunge")
    join(machine)
    assert (machine.root / "done").read_text() == f"{KEY}\n"
    assert not machine.path("/var/lib/tailrack/backup").exists()


def kept(machine: Shell, path: str) -> Path:
    """Where a path of another's lies now."""
    return machine.path(f"/var/lib/tailrack/backup{path}")


def set_slurm_aside(machine: Shell) -> None:
    machine.call(set_foreign_slurm_aside)


def test_anothers_slurm_files_are_kept_and_its_daemons_end(machine: Shell) -> None:
    of_others(machine)
    machine.write("etc/slurm/cgroup.conf", "# Written by tailrack.\n")
    machine.write("var/lib/slurm/slurmctld/clustername", "atlas")
    for _ in range(2):
        set_slurm_aside(machine)
    assert not machine.path("/etc/slurm/slurm.conf").exists()
    assert machine.path("/etc/slurm/cgroup.conf").exists()
    assert kept(machine, "/etc/slurm/slurm.conf").read_text() == ATLAS
    assert (kept(machine, "/var/lib/slurm/slurmctld") / "clustername").read_text() == "atlas"
    assert machine.calls == ["systemctl stop slurmd slurmctld"]


def test_a_machine_that_leaves_has_the_files_again_that_no_other_has_replaced(machine: Shell) -> None:
    of_others(machine)
    set_slurm_aside(machine)
    machine.call(put_back, "/etc/slurm/gres.conf", "/etc/slurm/slurm.conf")
    assert machine.path("/etc/slurm/slurm.conf").read_text() == ATLAS
    assert not machine.path("/var/lib/tailrack/backup").exists()
    set_slurm_aside(machine)
    machine.write("etc/slurm/slurm.conf", "a newer one")
    machine.call(put_back, "/etc/slurm/slurm.conf")
    assert machine.path("/etc/slurm/slurm.conf").read_text() == "a newer one"
    assert kept(machine, "/etc/slurm/slurm.conf").read_text() == ATLAS


def test_the_state_of_our_controller_stays_despite_foreign_cluster_names(machine: Shell) -> None:
    of_others(machine)
    machine.write("var/lib/slurm/slurmctld/clustername", "ours")
    machine.write("var/lib/tailrack/slurm/base/slurm.conf", "")
    set_slurm_aside(machine)
    assert machine.path("/var/lib/slurm/slurmctld/clustername").exists()


def test_a_link_to_a_configuration_elsewhere_is_anothers_and_so_is_a_second_one_after_the_first(machine: Shell) -> None:
    for number in (1, 2):
        shared = machine.write(f"shared/{number}.conf", ATLAS)
        machine.path("/etc/slurm").mkdir(exist_ok=True)
        machine.path("/etc/slurm/slurm.conf").symlink_to(shared)
        set_slurm_aside(machine)
    links = kept(machine, "/etc/slurm").iterdir()
    assert sorted(path.readlink().name for path in links) == ["1.conf", "2.conf"]


# Beside others


def run_server(machine: Shell) -> None:
    machine.call(ensure_kernel_server, "a1")


def leave(machine: Shell) -> None:
    assert_ok(machine.step(script_of("share", "leave"), {"share_mount": "/shared"}))


def test_a_kernel_server_with_exports_of_others_keeps_version_3_for_their_clients(machine: Shell) -> None:
    machine.stub("exportfs")
    ours = machine.path("/etc/nfs.conf.d/tailrack.conf")
    machine.write("etc/exports", "# none yet\n\n")
    machine.write("etc/exports.d/tailrack-b1.exports", "/export/shared 100.64.0.7/32(rw)\n")
    run_server(machine)
    assert "vers3=n" in ours.read_text()
    for path in ("etc/exports", "etc/exports.d/projects.exports"):
        machine.write("etc/exports", "")
        theirs = machine.write(path, "/srv/projects 192.0.2.0/24(rw)\n")
        run_server(machine)
        # On a port that is closed and not on any that the kernel gives.
        assert ours.read_text() == "# Written by tailrack.\n[mountd]\nport=20048\n"
        assert theirs.read_text() == "/srv/projects 192.0.2.0/24(rw)\n"
    assert machine.calls[-1] == "exportfs -ra"


def test_a_head_node_that_leaves_does_not_stop_a_server_with_exports_of_others(machine: Shell) -> None:
    machine.stub("exportfs")
    left = machine.write("etc/exports.d/tailrack-b1.exports", "/export/shared 100.64.0.7/32(rw)\n")
    leave(machine)
    assert not left.exists()
    assert "exportfs -ra" in machine.calls
    assert not [call for call in machine.calls if "disable" in call]


def test_a_server_that_ran_before_the_cluster_runs_after_it_with_its_defaults(machine: Shell) -> None:
    machine.stub("exportfs")
    machine.stub("systemctl", "case $1 in show) printf 'UnitFileState=enabled\\nActiveState=active\\n' ;; esac")
    machine.write("etc/exports", "/srv/projects 192.0.2.0/24(rw)\n")
    machine.call(note_units, "nfs-server")
    run_server(machine)
    leave(machine)
    assert machine.calls[-3:] == [
        "systemctl enable -q --no-reload nfs-server",
        "systemctl daemon-reload",
        "systemctl restart nfs-server",
    ]
    assert not machine.path("/etc/nfs.conf.d/tailrack.conf").exists()


# Accounts that are somebody's own.
