"""Role share: who may mount the share, and how a node mounts it."""

import errno
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import yaml

from components.node import folders
from components.node.step.step import Step
from components.roles.role import Value
from components.roles.storage.mounts.host import release as mounts_release
from components.roles.storage.share import exports, ganesha, kernel_server
from components.roles.storage.share.exports import export_line
from components.roles.storage.share.host import forget, release, share_is_a_file_system
from components.roles.storage.share.mount import NFS_BEFORE, ensure_mount_point
from components.steps.composition import HEAD as HEAD_PHASES
from components.steps.composition import compose
from tests.unit.shell import ROLES, Shell, assert_fails, assert_ok, script_of

Apply = Callable[[Shell, bool], None]
ENABLE = "systemctl --root=/ enable -q"
PATH = "/export/shared"
# What a table's columns are is said there.
TABLES = yaml.safe_load((Path(__file__).parents[3] / "fixtures" / "storage.yaml").read_text(encoding="utf-8"))
SHARE: dict[str, Value] = {"share_path": PATH, "share_mount": "/shared", "share_node": ""}


def configuration(shell: Shell) -> str:
    return shell.call(ganesha.configuration, PATH)


def run(shell: Shell, phase: str, values: dict[str, Value] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a phase of the role."""
    return shell.step(script_of("share", phase), {**SHARE, "node_open_ports": [], **(values or {})})


def succeed(shell: Shell, phase: str, values: dict[str, Value] | None = None) -> None:
    """Run a phase of the role, which succeeds."""
    assert_ok(run(shell, phase, values))


def mounted(shell: Shell, *mounts: str) -> None:
    """Let mounts be there: device, folder of the file system, place, and perhaps type, source and options."""
    rows = ((*line.split(), "ext4", "/dev/sda", "rw") for line in mounts)
    lines = (f"{' '.join(row[:3])} rw shared:1 - {' '.join(row[3:6])}" for row in rows)
    shell.write("proc/self/mountinfo", "".join(f"21 1 {line}\n" for line in lines))


def apply_exports(shell: Shell, kernel: bool) -> None:
    """Do with the server what the head node's step does."""
    with shell.here():
        if kernel:
            kernel_server.ensure_kernel_server("a1")
        else:
            ganesha.ensure_ganesha(PATH)


def apply_members(shell: Shell, kernel: bool) -> None:
    """Do with the server what a member's step does: here one that has left."""
    shell.call(forget, Step("a1", "b9-register"), "b9", PATH, "", kernel)


def export(shell: Shell, member: str, address: str) -> None:
    shell.write(f"etc/exports.d/tailrack-{member}.exports", f"/export/shared {address}/32(rw,sync,root_squash)\n")


def test_the_configuration_is_closed_version_4_only_and_of_our_exports(shell: Shell) -> None:
    shell.write("etc/exports.d/backup.exports", "/export 10.0.0.0/8(rw)\n")
    shell.write("etc/exports.d/tailrack-b1.exports.Xy12ab", "/export/shared 100.64.0.9/32(rw)\n")
    export(shell, "b1", "100.64.0.7")
    text = configuration(shell)
    code = re.sub(r"#.*", "", text)
    assert code.count("{") == code.count("}") > 3
    assert "Protocols = 4;" in text
    assert "Path = /export/shared; Pseudo = /export/shared;" in text
    assert re.findall(r"Clients = (\S+);", text) == ["100.64.0.7"]


def test_a_running_server_learns_a_changed_member_without_a_restart(shell: Shell) -> None:
    export(shell, "b1", "100.64.0.7")
    apply_exports(shell, kernel=False)
    export(shell, "b2", "100.64.0.8")
    before = len(shell.calls)
    apply_members(shell, kernel=False)
    apply_members(shell, kernel=False)
    # Members wait for each other's: nothing else is asked.
    runs, learns = "systemctl is-active -q nfs-ganesha", "systemctl kill -s HUP nfs-ganesha"
    assert shell.calls[before:] == [runs, learns, runs]
    # A call that was ended has only written the file.
    export(shell, "b3", "100.64.0.9")
    shell.path("/etc/ganesha/ganesha.conf").write_text(f"{configuration(shell)}\n", encoding="utf-8")
    apply_members(shell, kernel=False)
    assert shell.calls[before + 3 :] == [runs, learns]
    assert not [call for call in shell.calls if "restart" in call]
    assert "100.64.0.8" in shell.path("/etc/ganesha/ganesha.conf").read_text()


@pytest.mark.parametrize("kernel", [True, False])
def test_a_member_has_an_export_at_its_present_address_until_it_leaves(shell: Shell, kernel: bool) -> None:
    shell.stub("exportfs")
    file = shell.path("/etc/exports.d/tailrack-b1.exports")
    for address in ("100.64.0.7", "100.64.0.8"):
        line = export_line(PATH, address)
        succeed(shell, "register", {"node_name": "b1", "node_export": line, "head_kernel_nfs": kernel})
        assert file.read_text() == f"{line}\n"
        served = "exportfs -ra" in shell.calls if kernel else f"Clients = {address};" in configuration(shell)
        assert served
    shell.call(forget, Step("a1", "b1-register"), "b1", PATH, "", kernel)
    assert not file.exists()
    assert "CLIENT {" not in configuration(shell)


@pytest.mark.parametrize("apply", [apply_exports, apply_members], ids=["the head node's", "a member's"])
@pytest.mark.parametrize(("kernel", "unit"), [(False, "nfs-ganesha"), (True, "nfs-server")])
def test_a_stopped_server_is_started(shell: Shell, apply: Apply, kernel: bool, unit: str) -> None:
    shell.stubs("exportfs", "ss")
    shell.stub("systemctl", 'case "$*" in *is-active*) exit 3 ;; esac')
    apply(shell, kernel)
    assert f"systemctl restart {unit}" in shell.calls


def test_a_server_that_is_killed_is_started_again(shell: Shell) -> None:
    shell.stub("systemctl", "[ $1 != show ] || echo yes")
    apply_exports(shell, kernel=False)
    unit = shell.path("/etc/systemd/system/nfs-ganesha.service.d/tailrack-restart.conf").read_text()
    assert "Restart=always" in unit
    assert shell.calls.index("systemctl daemon-reload") < shell.calls.index(f"{ENABLE} nfs-ganesha.service")


def test_exportfs_updates_the_kernel_server_which_serves_only_version_4(shell: Shell) -> None:
    shell.stubs("exportfs", "ss")
    apply_exports(shell, kernel=True)
    assert shell.calls[-1] == "exportfs -ra"
    text = shell.path("/etc/nfs.conf.d/tailrack.conf").read_text()
    # Without version 2 too: rpc.mountd has listeners as long as it has one of the two.
    assert text == (
        "# Written by tailrack.\n[mountd]\nport=20048\n"
        "[nfsd]\nvers2=n\nvers3=n\nvers4=y\nlease-time=30\ngrace-time=30\n"
    )
    assert not shell.path("/etc/ganesha").exists()
    before = len(shell.calls)
    apply_members(shell, kernel=True)
    assert shell.calls[before:] == ["systemctl is-active -q nfs-server", "exportfs -ra"]


# What `ss -Hlntup` shows of rpc.mountd.
LISTENS = 'tcp LISTEN 0 4096 0.0.0.0:{} 0.0.0.0:* users:(("rpc.mountd",pid=268,fd=5))'


def test_an_open_mountd_port_stops_the_step(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.stub("exportfs")
    for port in (20048, 37591, 120048):
        shell.stub("ss", f"echo '{LISTENS.format(port)}'; echo '{LISTENS.format(22).replace('rpc.mountd', 'sshd')}'")
        failed = shell.failure_of(kernel_server.ensure_kernel_server, "a1")
        if port == 20048:
            assert failed == ""
            continue
        assert "rpc.mountd listens on ports" in failed
        assert "/etc/nfs.conf.d on a1" in failed
        assert f"tcp 0.0.0.0:{port}" in capsys.readouterr().err


def test_a_share_is_a_file_system_if_nothing_beyond_it_is_mounted(shell: Shell) -> None:
    for name in ("export/shared", "shared"):
        shell.path(name).mkdir(parents=True)
    shell.write("hosts", "")
    for mounts, own in TABLES["own_file_system"]:
        mounted(shell, *mounts)
        assert shell.call(share_is_a_file_system, PATH) == own, mounts


HEAD = "100.64.0.1"


def mount(shell: Shell, restored: str = "") -> subprocess.CompletedProcess[str]:
    """Run a node's part."""
    return run(shell, "node", {"share_address": HEAD, "share_restored": restored})


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with NFS's tools, where nothing is mounted yet."""
    shell.stubs("mount.nfs4", "mount", "umount")
    return shell


def unit(shell: Shell) -> dict[str, str]:
    """The settings of the mount's unit."""
    lines = shell.path("/etc/systemd/system/shared.mount").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_node_mounts_by_automount_after_the_tailnet_and_retries_for_ever(node: Shell) -> None:
    (node.root / "shared/home").mkdir(parents=True)
    assert_ok(mount(node))
    wanted = {"What": f"{HEAD}:/export/shared", "Options": "hard,nosuid,nodev,nfsvers=4.2,_netdev"}
    wanted |= {"Requires": "tailrack-tailnet.service", "StartLimitIntervalSec": "0"}
    assert wanted.items() <= unit(node).items()
    assert f"{ENABLE} shared.automount" in node.calls


def test_a_failing_mount_stops_the_step_with_the_message_of_systemd(node: Shell) -> None:
    node.hurry()
    node.stub("stat", "exit 1")
    node.stub("systemctl", "case $* in *Result*) echo timeout ;; esac")
    assert_fails(
        mount(node), f"the share {HEAD}:/export/shared does not mount at /shared within 300s", "systemd says: timeout"
    )


def test_a_mount_point_that_was_not_there_goes_with_the_machine(node: Shell) -> None:
    lost = mock.Mock(side_effect=OSError(errno.ESTALE, "Stale file handle"))
    with mock.patch.object(folders, "kind_of", lost):
        node.call(ensure_mount_point, "/shared")
    assert not node.path("/shared").exists()
    assert not node.path(NFS_BEFORE).exists()
    node.call(ensure_mount_point, "/shared")
    assert node.path("/shared").is_dir()
    assert node.path(NFS_BEFORE).read_text() == "folder /shared\n"
    succeed(node, "leave")
    assert not node.path("/shared").exists()


AUTOMOUNT = "0:40 / /shared autofs systemd-1 rw"


@pytest.mark.parametrize(("server", "kept"), [(HEAD, True), ("100.64.0.9", False)])
def test_a_share_in_use_keeps_its_mount_unless_its_server_is_another_one(node: Shell, server: str, kept: bool) -> None:
    (node.root / "shared/home").mkdir(parents=True)
    mounted(node, AUTOMOUNT, f"0:41 / /shared nfs4 {server}:/export/shared rw")
    assert mount(node).returncode == 0
    stops = [call for call in node.calls if call.startswith(("systemctl stop", "mount "))]
    assert stops == ([] if kept else ["systemctl stop shared.automount shared.mount"])


@pytest.mark.parametrize(("restored", "stale"), [("", True), ("monday", False), ("monday", True)])
def test_the_step_remounts_a_restored_share_with_stale_handles(node: Shell, restored: str, stale: bool) -> None:
    (node.root / "shared/home").mkdir(parents=True)
    mounted(node, AUTOMOUNT, f"0:41 / /shared nfs4 {HEAD}:/export/shared rw")
    if stale:
        node.stub("stat", '[ $# -lt 3 ] || echo "stat: cannot statx: Stale file handle" >&2')
    assert mount(node, restored).returncode == 0
    lazily = [call for call in node.calls if call.startswith(("umount", "mount "))]
    again = bool(restored) and stale
    assert lazily == (["umount -l /shared"] if again else [])


# A storage node serves the share instead of the head node.


def test_a_storage_node_exports_to_the_members_in_the_list_and_to_the_head_nodes_root(shell: Shell) -> None:
    export(shell, "gone", "100.64.0.9")
    shell.write(
        "export/shared/.tailrack/exports", "b1 100.64.0.7\nhead 100.64.0.8\n../x 100.64.0.5\nb2 *(rw)\nb3 0/0\n"
    )
    shell.call(exports.export_to_members, PATH, f"head {HEAD}")
    files = {file.name: file.read_text() for file in shell.path("/etc/exports.d").iterdir()}
    options = "(rw,sync,secure,{}root_squash,no_subtree_check)\n"
    assert files == {
        "tailrack-b1.exports": f"{PATH} 100.64.0.7/32{options.format('')}",
        "tailrack-head.exports": f"{PATH} {HEAD}/32{options.format('no_')}",
    }
    assert re.findall(r"Clients = (\S+); Access_Type = RW; (Squash)?", configuration(shell)) == [
        ("100.64.0.7", ""), (HEAD, "Squash"),
    ]  # fmt: skip


def with_server(shell: Shell, phase: str, **values: Value) -> subprocess.CompletedProcess[str]:
    given = {"share_address": "100.64.0.3", "share_restored": "", "share_name": "new", "users_lines": []}
    return run(shell, phase, {"share_node": "s1", "head_kernel_nfs": False, **given, **values})


def test_the_head_node_refuses_another_server_of_the_share_and_another_share(shell: Shell) -> None:
    shell.write("etc/tailrack/share", "SHARE='/export/shared'")
    moved = "the share is on a1, and the config has it on s1, where its files are not", "write no tailrack:storage.node"
    assert_fails(with_server(shell, "check_head"), *moved)
    shell.write("var/lib/tailrack/share-server", f"s1 old {PATH}\n")
    assert_ok(with_server(shell, "check_head"))
    moved = "the share is on s1, and the config has it on a1, where its files are not", "tailrack:storage.node: s1"
    assert_fails(with_server(shell, "check_head", share_node=""), *moved)
    assert_fails(with_server(shell, "head"), "/export/shared on s1 is not the cluster's share")
    shell.write("export/shared/data", "")
    assert_fails(with_server(shell, "check_head"), f"cannot be mounted at {PATH}, which is a folder with files (data)")


def test_no_machine_joins_while_the_storage_node_is_lost_and_one_that_leaves_is_forgotten(shell: Shell) -> None:
    shell.write("etc/systemd/system/export-shared.automount", "")
    shell.stub("stat", "exit 1")
    node: dict[str, Value] = {"node_name": "b1", "node_export": export_line(PATH, "100.64.0.7")}
    assert_fails(with_server(shell, "register", **node), "the share of the storage node s1 does not answer")
    export(shell, "b1", "100.64.0.7")
    shell.call(forget, Step("a1", "b1-register"), "b1", PATH, "s1", False)
    assert not shell.path("/etc/exports.d/tailrack-b1.exports").exists()
    assert not shell.path(PATH).exists()


def test_a_storage_node_leaves_only_after_all_others(shell: Shell) -> None:
    export(shell, "s1", "100.64.0.3")
    shell.call(mounts_release, Step("a1", "s1-register"), "s1", "s1")
    export(shell, "b1", "100.64.0.7")
    shell.call(mounts_release, Step("a1", "b1-register"), "b1", "s1")
    failed = shell.failure_of(mounts_release, Step("a1", "s1-register"), "s1", "s1")
    assert "s1 has the share with the users' files, and 1 other machines need it" in failed


def test_the_head_node_waits_for_no_mount_of_a_storage_node_that_has_left(shell: Shell) -> None:
    mounted(shell, "0:9 / /data nfs4 10.0.0.5:/data", f"0:8 / /shared nfs4 100.64.0.3:{PATH}")
    shell.stub("umount")
    for member in ("b1", "s1"):
        shell.call(release, Step("a1", f"{member}-register"), member, PATH, "s1")
    assert shell.calls == ["systemctl stop shared.automount", "umount -l /shared"]


# What is masked for the cluster, and given back.

MASKED = (
    *("rpcbind.socket", "rpcbind.service", "rpc-statd.service", "rpc-statd-notify.service"),
    "nfs-ganesha-lock.service",
)


def shown(*states: str) -> str:
    """What a systemd does that knows units by these states of their files."""
    said = (f"UnitFileState={state}\nActiveState={'' if state == 'enabled' else 'in'}active" for state in states)
    return "if [ $1 = show ]; then printf '%s\\n' '{}'; fi".format("\n\n".join(said))


@pytest.mark.parametrize("times", [1, 2])
def test_leaving_restores_the_earlier_state_of_each_nfs_unit(shell: Shell, times: int) -> None:
    shell.stub("systemctl", shown("enabled", "", "masked", "static", ""))
    for _ in range(times):
        succeed(shell, "machine")
        # From now on they are, and nothing of it is noted as the machine's own.
        shell.stub("systemctl")
        for unit in MASKED:
            link = shell.path(f"/etc/systemd/system/{unit}")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
    # Masked once, stopped each time: a step that was cut off in between has only masked them.
    names = " ".join(MASKED)
    told = [call for call in shell.calls if " mask " in call or " stop " in call]
    assert told == [f"systemctl --root=/ mask -q {names}", *[f"systemctl stop -q {names}"] * times]
    before = len(shell.calls)
    succeed(shell, "leave")
    words = ("unmask", "able", "daemon-reload", "restart")
    undone = [call for call in shell.calls[before:] if any(word in call for word in words)]
    # systemd reads all units anew once, and not for each of them.
    assert undone == [
        "systemctl daemon-reload",  # the share's
        "systemctl unmask -q --no-reload rpcbind.socket",
        "systemctl enable -q --no-reload rpcbind.socket",
        "systemctl unmask -q --no-reload rpcbind.service",
        "systemctl disable -q --no-reload rpcbind.service",
        "systemctl unmask -q --no-reload rpc-statd-notify.service",
        "systemctl unmask -q --no-reload nfs-ganesha-lock.service",
        "systemctl disable -q --no-reload nfs-ganesha-lock.service",
        "systemctl daemon-reload",
        "systemctl restart rpcbind.socket",
    ]


@pytest.mark.parametrize("masked", [False, True], ids=["first step", "the one before was cut off after the masks"])
@pytest.mark.parametrize("known", ["loaded", "masked"])
def test_systemd_reads_masks_before_the_server_starts_its_dependencies(shell: Shell, masked: bool, known: str) -> None:
    units = shell.path("/etc/systemd/system")
    units.mkdir(parents=True)
    for unit in MASKED if masked else ():
        (units / unit).symlink_to("/dev/null")
    states = "\n\n".join([known, *["masked"] * 4])
    # The server does not run yet.
    shell.stub(
        "systemctl", f'[ "$*" != "show -P LoadState {" ".join(MASKED)}" ] || echo "{states}"; [ $1 != is-active ]'
    )
    shell.stubs("exportfs", "ss")
    shell.path(PATH).mkdir(parents=True)
    shell.write("usr/local/sbin/tailrack-share", "#!/bin/sh\n").chmod(0o755)
    step = compose([role for role in ROLES if role.name == "share"], HEAD_PHASES)
    # The program that closes the share is no matter here.
    step = replace(step, calls={"up": tuple(call for call in step.calls["up"] if call[0] == "python")})
    values: dict[str, Value] = {**SHARE, "node_open_ports": [], "head_kernel_nfs": True, "users_lines": []}
    values |= {"share_address": HEAD, "share_restored": "", "share_name": ""}
    assert_ok(shell.step(step, values))
    told = [call for call in shell.calls if call in ("systemctl daemon-reload", "systemctl restart nfs-server")]
    assert told == ["systemctl daemon-reload", "systemctl restart nfs-server"]


def test_a_head_node_that_has_booted_since_leaves_no_mount_of_the_share(shell: Shell) -> None:
    # What tailrack-share mounts over the served directory shows at the other place too.
    shell.stub("systemctl")
    shell.write("etc/systemd/system/shared.mount", "")
    mounted(shell, "8:1 /export/shared /shared", "8:1 /export/shared /shared")
    mounts = shell.path("proc/self/mountinfo")
    shell.stub("umount", f'sed -i 1d "{mounts}"')
    succeed(shell, "leave")
    assert mounts.read_text() == ""
    assert [call for call in shell.calls if call.startswith("umount")] == ["umount -l /shared"] * 2


def test_leaving_stops_only_units_that_the_kernel_server_started(shell: Shell) -> None:
    shell.stub("systemctl")
    shell.write("etc/nfs.conf.d/tailrack.conf", "")
    noted = ("nfs-server disabled inactive", "nfsdcld.service not-found inactive", "run-rpc_pipefs.mount static active")
    shell.write("var/lib/tailrack/nfs-before", "".join(f"unit {line}\n" for line in noted))
    for _ in range(2):
        succeed(shell, "leave")
    assert [call for call in shell.calls if call.startswith("systemctl stop")] == ["systemctl stop nfsdcld.service"]


def test_an_account_that_goes_while_the_share_is_left_does_not_take_the_stops_place(shell: Shell) -> None:
    # As systemd does it: a start that is asked for while a stop waits takes its place, and the stop fails.
    watching = shell.write("watching", "tailrack-share.path tailrack-share-again.service")
    shell.stub(
        "systemctl",
        f"""for unit; do
    [ "$unit" != tailrack-share.service ] || [ ! -s "{watching}" ] || {{ echo "Job for $unit canceled." >&2; exit 1; }}
done
for unit; do sed -i "s/$unit//; s/^ *$//; /^$/d" "{watching}"; done""",
    )
    shell.write("etc/systemd/system/tailrack-share.path", "")
    for _ in range(2):
        succeed(shell, "leave")
        assert "canceled" not in shell.path("/var/log/tailrack/a1-step.log").read_text()


# What others have of NFS here, and what is where the share is to be.


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine whose kernel has an NFS server, with nothing of others' NFS."""
    shell.write("proc/filesystems", "nodev\tnfsd\n")
    shell.write("etc/fstab", "# nas:/old /old nfs defaults 0 0\nUUID=1 / ext4 defaults 0 1\n")
    shell.stub("dpkg-query", "exit 1")
    return shell


def found(machine: Shell) -> list[int]:
    done = assert_ok(run(machine, "check"))
    ports = json.loads(done.stdout)["open_ports"]
    assert isinstance(ports, list)
    return ports


def test_the_configuration_and_mounts_decide_which_nfs_ports_other_programs_need(machine: Shell) -> None:
    for path, text, ports in TABLES["ports"]:
        assert found(machine) == [], (path, text)
        file = machine.write(path, text)
        assert found(machine) == ports, (path, text)
        file.unlink()
    for mount, ports in (("nfs nas:/home rw,vers=3", [111]), ("nfs4 nas:/home rw,vers=4.2", [])):
        mounted(machine, "8:1 / /", f"0:50 / /home {mount}")
        assert found(machine) == ports, mount


def test_the_step_unmasks_units_that_other_programs_need(machine: Shell) -> None:
    machine.stub("systemctl", shown("enabled", "", "masked", "static", ""))
    succeed(machine, "machine")
    before = len(machine.calls)
    for _ in range(2):
        succeed(machine, "machine", {"node_open_ports": [111]})
    undone = [call for call in machine.calls[before:] if "mask" in call]
    assert undone == [f"systemctl unmask -q --no-reload {unit}" for unit in MASKED if unit != "rpc-statd.service"]


def in_the_way(machine: Shell) -> str:
    done = run(machine, "check")
    if done.returncode == 0:
        return ""
    (conflict,) = re.findall(r"cannot be mounted at /shared, which is (.*) on this machine$", done.stderr, re.MULTILINE)
    return str(conflict)


def test_the_check_rejects_a_machine_with_files_at_the_mount_point(machine: Shell) -> None:
    share = machine.root / "shared"
    assert in_the_way(machine) == ""
    share.mkdir()
    assert in_the_way(machine) == ""
    (share / "thesis.tex").write_text("years of work")
    assert in_the_way(machine) == "a folder with files (thesis.tex)"
    # The cluster's own share is in no one's way, and a unit of others is.
    unit = "etc/systemd/system/shared.mount"
    for description, own in (
        ("Our department's share", False),
        ("The cluster's share", True),
        ("The cluster's share, on the machine that serves it", True),
    ):
        file = machine.write(unit, f"[Unit]\nDescription={description}\n")
        assert in_the_way(machine) == ("" if own else "a folder with files (thesis.tex)"), description
    file.unlink()
    (share / "thesis.tex").unlink()
    share.rmdir()
    share.symlink_to("/data")
    assert in_the_way(machine) == "a link"
    share.unlink()
    share.touch()
    assert in_the_way(machine) == "not a folder"
    share.unlink()
    machine.write("etc/fstab", "nas:/vol /shared nfs4 noauto 0 0\n")
    assert in_the_way(machine) == "another mount (nas:/vol nfs4)"
    mounted(machine, "0:50 / /shared lustre lustre@tcp:/fs rw")
    assert in_the_way(machine) == "another mount (lustre@tcp:/fs lustre)"
