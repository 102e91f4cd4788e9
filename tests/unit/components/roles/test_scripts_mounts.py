"""Role mounts on a node: what is mounted and how, what is checked, which features the node has, and how it ends."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.node.run import Ended
from components.roles.slurm.slurm.node_state import live_features, set_live_features
from components.roles.storage.mounts import probe, units, watch
from components.roles.storage.mounts.probe import Wanted, check_all, read_list
from components.validation.preflight.storage import check_mounts
from tests.unit.shell import Shell, assert_ok, script_of

SOURCE = "10.0.0.5:/export"
ROWS: dict[str, tuple[Any, ...]] = {
    "data": ("/data", "nfs4", SOURCE, "noatime", False, False, False, "one"),
    "must": ("/data", "nfs4", SOURCE, "", False, True, False, "one"),
    "read": ("/data", "nfs4", SOURCE, "", True, False, False, "one"),
    "fs1": ("/lambda/fs1", "present", "", "", False, False, False, ""),
    "homes": ("/lustre/home", "present", "", "", False, True, False, "", "/lustre/home/ada"),
}
NFS_LINE = f"0:41 / /data rw,nosuid,nodev - nfs4 {SOURCE} rw"
AUTOFS_LINE = "0:40 / /data rw - autofs systemd-1 rw"
STAT = "4096 1000 900 1000 900"


def wanted(name: str, **changes: Any) -> Wanted:
    mount = Wanted(*ROWS[name])
    return Wanted(**{**mount.__dict__, **changes})


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node of site one with an NFS client, whose servers answer, and which Slurm does not have yet."""
    shell.stubs("mount.nfs4", "umount", "getent", "mktemp", "rm", "find")
    shell.stub("stat", f"echo {STAT}")
    shell.stub("scontrol", "exit 1")
    shell.stub("runuser", 'while [ "$1" != -- ]; do shift; done; shift; "$@"')
    shell.write("etc/fstab", "")
    mounted(shell)
    shell.hurry()
    return shell


def mounted(shell: Shell, *lines: str) -> None:
    shell.write("proc/self/mountinfo", "".join(f"21 1 {line}\n" for line in ("8:1 / / rw - ext4 /dev/sda rw", *lines)))


def compute(shell: Shell, *names: str, site: str = "one") -> subprocess.CompletedProcess[str]:
    """Run the phase with these rows of the config."""
    values: dict[str, Any] = {
        "mounts_table": [ROWS[name] for name in names],
        "share_mount": "/shared",
        "share_path": "/export/shared",
        "node_site": site,
        "users_lines": [("ada", 6001, 6001)],
    }
    return shell.step(script_of("mounts", "compute"), values)


def unit(shell: Shell, name: str = "data.mount") -> dict[str, str]:
    lines = shell.path(f"/etc/systemd/system/{name}").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def results(shell: Shell) -> dict[str, str]:
    """Return the problem of each mount as the health check reads it."""
    content = json.loads(shell.path("/run/tailrack/mounts.json").read_text())
    return {row["path"]: row["problem"] for row in content["mounts"]}


def test_a_mount_is_closed_and_waits_for_the_network(node: Shell) -> None:
    mounted(node, AUTOFS_LINE, NFS_LINE)
    node.write("var/lib/tailrack/mounts", "unit /data\n")
    assert_ok(compute(node, "data"))
    expected = {"What": SOURCE, "Where": "/data", "Type": "nfs4", "After": "network-online.target"}
    assert expected.items() <= unit(node).items()
    assert unit(node)["Options"] == "rw,nosuid,nodev,_netdev,hard,noatime"
    (enabled,) = {call for call in node.calls if " enable " in call}
    assert "data.automount" in enabled.split()
    assert results(node) == {"/data": ""}


def test_a_folder_with_files_is_not_hidden_and_the_node_goes_on(node: Shell) -> None:
    node.write("data/mine", "")
    assert_ok(compute(node, "data"))
    log = node.path("/var/log/tailrack/a1-step.log").read_text()
    assert "mount /data cannot be mounted: /data is a folder with files (mine) on this machine; next: write" in log
    assert not node.path("/etc/systemd/system/data.mount").exists()


def test_a_pools_mount_in_the_share_is_refused_on_the_node(node: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "inside", ("/shared/data", "nfs4", SOURCE, "", False, True, False, ""))
    done = compute(node, "inside")
    assert "the required mount /shared/data is inside or around /shared, the cluster's share" in done.stderr
    assert not list(node.path("/etc/systemd/system").glob("shared*"))


def test_a_required_mount_that_fails_ends_the_step_with_its_name_and_the_next_command(node: Shell) -> None:
    node.stub("stat", "echo \"stat: cannot read file system information for '/data': No such device\" >&2; exit 1")
    done = compute(node, "must")
    assert done.returncode == 1
    reason, remedy = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert "the required mount /data cannot be read (No such device): the name 10.0.0.5 does not resolve" in reason
    assert remedy.startswith("next: check that 10.0.0.5 is up and this node may connect, or correct its source; then")


TABLES = yaml.safe_load((Path(__file__).parents[3] / "fixtures" / "storage.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", TABLES["probes"])
def test_a_check_names_the_problem(node: Shell, monkeypatch: pytest.MonkeyPatch, row: list[Any]) -> None:
    name, answer, lines, problem = row
    mounted(node, *lines)
    monkeypatch.setattr(probe, "_ask", lambda path: Ended(*answer))
    problems = node.call(check_all, [wanted(name)])
    assert bool(problems) == bool(problem)
    for found in problems.values():
        assert found.text.startswith(problem)
        assert found.remedy


def test_a_folder_is_read_too_and_root_may_be_refused(node: Shell) -> None:
    mounted(node, "0:9 / /lambda/fs1 rw - fuse.rclone fs1 rw")
    place = node.path("/lambda/fs1")
    for error, problem in {"": "", "Permission denied": "", "Input/output error": "(Input/output error)"}.items():
        node.stub("find", f"echo \"find: '{place}': {error}\" >&2; exit 1" if error else "")
        problems = node.call(check_all, [wanted("fs1")])
        assert [found.text for found in problems.values()] == ([f"cannot be read {problem}"] if problem else []), error
    assert node.calls.count(f"find {place} -maxdepth 1 -mindepth 1 -quit") == 3
    # An earlier check that hangs is not repeated.
    before = len(node.calls)
    words = ["stat", "-f", "-c", "%S %b %a %c %d", "--", str(node.path("/data")), ""]
    node.write("proc/77/cmdline", "\0".join(words))
    assert not node.call(probe.answers, "/data")
    assert not [call for call in node.calls[before:] if call.startswith(("stat", "find"))]


def test_a_users_write_detects_hidden_mount_problems_once_an_hour(node: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, problem in (
        ("Read-only file system", "is read-only on its server"),
        ("No space left on device", "is full for user ada"),
        ("Disk quota exceeded", "is full for user ada"),
        ("Permission denied", ""),
    ):
        node.stub("mktemp", f"echo 'mktemp: failed: {error}' >&2; exit 1")
        found = node.call(probe.write_problem, wanted("data"), "ada")
        assert (found.text if found else "") == problem, error
    assert len([call for call in node.calls if call.startswith("runuser -u ada -- mktemp")]) == 4
    # A home is the user's own: its mode and the user's quota stop no node.
    for error in ("Permission denied", "Disk quota exceeded"):
        node.stub("mktemp", f"echo 'mktemp: failed: {error}' >&2; exit 1")
        found = node.call(probe.write_problem, wanted("homes"), "ada")
        assert found.text == "has no home /lustre/home/ada that belongs to user ada"
        node.path("/lustre/home/ada").mkdir(parents=True)
        assert node.call(probe.write_problem, wanted("homes"), "ada") is None
        node.path("/lustre/home/ada").rmdir()
    mounted(node, NFS_LINE, "0:9 / /lustre/home rw - lustre fs rw")
    node.write("var/lib/tailrack/mounts", "unit /data\n")
    node.stub("mktemp")
    assert_ok(compute(node, "data", "homes"))
    attempts: list[str] = []
    monkeypatch.setattr(watch, "write_problem", lambda mount, user: attempts.append(mount.path))
    with node.here():
        watch.problems_of(read_list())
        assert attempts == []
        monkeypatch.setattr(watch, "_WRITE_SECONDS", 0)
        watch.problems_of(read_list())
        watch.problems_of(read_list(), write=True)
    assert attempts == ["/data", "/data", "/lustre/home"]


def slurm(shell: Shell, *features: str, active: str | None = None) -> None:
    """Let Slurm have the node with these features."""
    names = json.dumps(features)
    node = {"name": "a1", "state": ["IDLE"], "features": 0, "active_features": 0}
    text = json.dumps({"nodes": [node]}).replace(": 0", f": {names}", 1).replace(": 0", f": {active or names}", 1)
    shell.stub("scontrol", f"case $1 in show) echo '{text}' ;; esac")


def updates(shell: Shell) -> list[str]:
    return [call.partition("availablefeatures=")[2] for call in shell.calls if call.startswith("scontrol update")]


def test_a_node_has_the_features_of_its_mounts_beside_others(node: Shell) -> None:
    slurm(node, "site-one", "nvme")
    assert node.call(set_live_features, "a1", "mounts", {"mount-data"})
    assert node.call(live_features) == {"mount-data"}
    node.write("var/lib/tailrack/features/mounts", "mount-data\nmount-models\n")
    node.write("var/lib/tailrack/features/other", "data-set\n")
    slurm(node, "site-one", "data-set", "mount-data", "mount-models")
    node.call(set_live_features, "a1", "mounts", {"mount-models"})
    assert node.call(live_features) == {"mount-models", "data-set"}
    changes = ("nvme,site-one,mount-data", "data-set,site-one,mount-models")
    assert updates(node) == [f"{features} activefeatures={features}" for features in changes]


def test_a_change_that_slurm_does_not_take_is_tried_again(node: Shell) -> None:
    node.write("var/lib/tailrack/features/mounts", "mount-data\n")
    assert not node.call(set_live_features, "a1", "mounts", ())
    # A step must not take it for a part of the registration.
    assert node.call(live_features) == {"mount-data"}
    slurm(node, "site-one", "mount-data")
    assert node.call(set_live_features, "a1", "mounts", ())
    assert not node.path("/var/lib/tailrack/features").exists()


def unmounts_when_stopped(shell: Shell, *, busy: bool = False) -> None:
    """Let systemd unmount /data, or find it busy."""
    lines = shell.path("/proc/self/mountinfo")
    body = "" if busy else f"case $* in 'stop data.mount') sed -i '/ nfs4 /d' {lines} ;; esac"
    shell.stub("systemctl", body)


@pytest.fixture
def with_data(node: Shell) -> Shell:
    """A node with the mount /data."""
    mounted(node, AUTOFS_LINE, NFS_LINE)
    node.write("var/lib/tailrack/mounts", "unit /data\n")
    assert compute(node, "data").returncode == 0
    node.write("var/lib/tailrack/mounts", "unit /data\nfolder /data\n")
    node.path("/data").mkdir(exist_ok=True)
    return node


def test_out_of_the_config_it_is_unmounted_and_nothing_is_left(with_data: Shell) -> None:
    unmounts_when_stopped(with_data)
    assert compute(with_data).returncode == 0
    for path in ("/data", "/etc/tailrack/mounts.json", "/var/lib/tailrack/mounts"):
        assert not with_data.path(path).exists()
    names = [path.name for path in with_data.path("/etc/systemd/system").iterdir() if path.is_file()]
    assert [name for name in names if "data" in name or "mounts" in name] == []
    assert not [call for call in with_data.calls if call.startswith("umount")]


def test_a_mount_that_jobs_use_stays_until_they_end(with_data: Shell) -> None:
    unmounts_when_stopped(with_data, busy=True)
    assert compute(with_data).returncode == 0
    assert with_data.path("/etc/systemd/system/data.mount").exists()
    assert "systemctl --root=/ disable -q data.automount" in with_data.calls
    assert "mount /data is in use" in with_data.path("/var/log/tailrack/a1-step.log").read_text()
    unmounts_when_stopped(with_data)
    with with_data.here():
        assert watch.check("a1", read_list()) == {}
    assert not with_data.path("/etc/systemd/system/data.mount").exists()
    assert not with_data.path("/usr/local/sbin/tailrack-mounts").exists()


def test_another_source_is_mounted_once_the_old_is_unused(with_data: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    unmounts_when_stopped(with_data, busy=True)
    monkeypatch.setitem(ROWS, "moved", ("/data", "nfs4", "10.0.0.9:/export", "", False, False, False, "one"))
    assert compute(with_data, "moved").returncode == 0
    assert results(with_data)["/data"].startswith(f"is mounted from {SOURCE}, not from 10.0.0.9:/export")
    with with_data.here():
        assert units.recorded("stale") == ["/data"]
        unmounts_when_stopped(with_data)
        watch.finish(read_list())
        assert units.recorded("stale") == []
    assert with_data.calls.count("systemctl stop data.mount") == 3


def test_leaving_takes_everything_away(with_data: Shell) -> None:
    with_data.stub("umount", f"sed -i '/ nfs4 /d' {with_data.path('/proc/self/mountinfo')}")
    with_data.write("var/lib/tailrack/features/mounts", "mount-data\n")
    assert_ok(with_data.step(script_of("mounts", "leave"), {}))
    assert "umount -l /data" in with_data.calls
    for path in ("/data", "/etc/tailrack/mounts.json", "/var/lib/tailrack/mounts", "/var/lib/tailrack/features"):
        assert not with_data.path(path).exists()


@pytest.mark.parametrize(("rows", "expected"), TABLES["findings"])
def test_the_health_check_reads_the_results(shell: Shell, rows: object, expected: list[list[str]]) -> None:
    shell.write("etc/tailrack/mounts.json", "{}")
    shell.write("run/tailrack/mounts.json", json.dumps({"time": 1000, "mounts": rows}))
    assert [[item["severity"], item["seen"]] for item in check_mounts(shell.root, 1060)] == expected
    (old,) = check_mounts(shell.root, 2000)
    assert old["seen"] == "the mounts of storage.mounts are not checked"
