"""Role nfs_exports: who may mount the share, and how a node mounts it."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from components.roles.role import FOLDER
from tests.unit.shell import ROLES, Shell

ENABLE = "systemctl --root=/ enable -q"
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
    before = len(shell.calls)
    assert shell.call("apply_members", apply, "nfs_exports/server").returncode == 0
    assert shell.call("apply_members", apply, "nfs_exports/server").returncode == 0
    # Members wait for each other's: nothing else is asked.
    runs = "systemctl -q is-active nfs-ganesha"
    assert shell.calls[before:] == [runs, "systemctl kill -s HUP nfs-ganesha", runs]
    assert not [call for call in shell.calls if "restart" in call]
    assert "100.64.0.8" in shell.path("/etc/ganesha/ganesha.conf").read_text()


@pytest.mark.parametrize("step", ["apply_exports", "apply_members"], ids=["the head node's", "a member's"])
@pytest.mark.parametrize(("kernel", "unit"), [("false", "nfs-ganesha"), ("true", "nfs-server")])
def test_a_server_that_does_not_run_is_started(shell: Shell, step: str, kernel: str, unit: str) -> None:
    for command in ("exportfs", "ss"):
        shell.stub(command)
    shell.stub("systemctl", 'case "$*" in *is-active*) exit 3 ;; esac')
    assert shell.call(step, {**SERVER, "HEAD_KERNEL_NFS": kernel}, "nfs_exports/server").returncode == 0
    assert f"systemctl restart {unit}" in shell.calls


def test_a_server_that_is_killed_is_started_again(shell: Shell) -> None:
    shell.stub("systemctl", "[ $1 != show ] || echo yes")
    assert shell.call("apply_exports", {**SERVER, "HEAD_KERNEL_NFS": "false"}, "nfs_exports/server").returncode == 0
    unit = shell.path("/etc/systemd/system/nfs-ganesha.service.d/tailrack-restart.conf").read_text()
    assert "Restart=always" in unit
    assert shell.calls.index("systemctl daemon-reload") < shell.calls.index(f"{ENABLE} nfs-ganesha.service")


def test_the_kernels_server_is_told_with_exportfs_and_serves_version_4_only(shell: Shell) -> None:
    shell.stub("exportfs")
    shell.stub("ss")
    assert shell.call("apply_exports", {**SERVER, "HEAD_KERNEL_NFS": "true"}, "nfs_exports/server").returncode == 0
    assert shell.calls[-1] == "exportfs -ra"
    text = shell.path("/etc/nfs.conf.d/tailrack.conf").read_text()
    # Without version 2 too: rpc.mountd has listeners as long as it has one of the two.
    assert text == (
        "# Written by tailrack.\n[mountd]\nport=20048\n"
        "[nfsd]\nvers2=n\nvers3=n\nvers4=y\nlease-time=30\ngrace-time=30\n"
    )
    assert not shell.path("/etc/ganesha").exists()
    before = len(shell.calls)
    assert shell.call("apply_members", {**SERVER, "HEAD_KERNEL_NFS": "true"}, "nfs_exports/server").returncode == 0
    assert shell.calls[before:] == ["systemctl -q is-active nfs-server", "exportfs -ra"]


# What `ss -Hlntup` shows of rpc.mountd.
LISTENS = 'tcp LISTEN 0 4096 0.0.0.0:{} 0.0.0.0:* users:(("rpc.mountd",pid=268,fd=5))'


@pytest.mark.parametrize(("port", "fine"), [(20048, True), (37591, False), (120048, False)])
def test_a_mountd_that_listens_where_no_rule_is_stops_the_step_and_says_where_to_look(
    shell: Shell, port: int, fine: bool
) -> None:
    shell.stub("exportfs")
    shell.stub("ss", f"echo '{LISTENS.format(port)}'; echo '{LISTENS.format(22).replace('rpc.mountd', 'sshd')}'")
    done = shell.call("apply_exports", {**SERVER, "HEAD_KERNEL_NFS": "true"}, "nfs_exports/server")
    assert (done.returncode == 0) == fine
    assert fine or f"0.0.0.0:{port}" in done.stdout


def test_the_port_of_mountd_is_one_of_those_that_are_closed() -> None:
    (port,) = re.findall(r"^MOUNTD_PORT=(\d+)$", (FOLDER / "nfs_exports/server.sh").read_text(), re.MULTILINE)
    closed = next(role.values["FIREWALL_PORTS"] for role in ROLES if role.name == "firewall")
    assert port in str(closed).split(", ")


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


HEAD = "100.64.0.1"


def mount(shell: Shell) -> subprocess.CompletedProcess[str]:
    """Run a node's part, where the share is `shared` of the machine."""
    values = {
        **SERVER,
        "HEAD_ADDRESS": HEAD,
        "NFS_EXPORTS_RESTORED": "",
        "NFS_EXPORTS_MOUNT": str(shell.root / "shared"),
    }
    return shell.call("nfs_exports_node", values, "nfs_exports/node")


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with NFS's tools, where nothing is mounted yet."""
    shell.write("sbin/mount.nfs4", "").chmod(0o755)
    shell.write("var/lib/tailrack/here", "")
    shell.stub("systemd-escape", "echo shared")
    shell.stub("findmnt", "exit 1")
    shell.stub("mount")
    return shell


def unit(shell: Shell) -> dict[str, str]:
    """The settings of the mount's unit."""
    lines = shell.path("/etc/systemd/system/shared.mount").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_node_mounts_by_automount_after_the_tailnet_and_retries_for_ever(node: Shell) -> None:
    (node.root / "shared/home").mkdir(parents=True)
    done = mount(node)
    assert done.returncode == 0, done.stderr
    wanted = {"What": f"{HEAD}:/export/shared", "Options": "hard,nosuid,nodev,nfsvers=4.2,_netdev"}
    wanted |= {"Requires": "tailrack-tailnet.service", "StartLimitIntervalSec": "0"}
    assert wanted.items() <= unit(node).items()
    assert f"{ENABLE} shared.automount" in node.calls


def test_a_slow_mount_has_as_long_as_the_step_waits_and_longer_than_mount_itself_tries(node: Shell) -> None:
    (node.root / "shared/home").mkdir(parents=True)
    # Time goes by fast, and the share answers at the end of it: after 140 s.
    node.stub("sleep")
    node.stub("timeout", f"count=$(wc -l <{node.root}/calls); [ $count -gt 12 ]")
    done = mount(node)
    assert done.returncode == 0, done.stderr
    assert int(unit(node)["TimeoutSec"]) > 120
    assert f"SHARE_WAIT={unit(node)['TimeoutSec']}\n" in (FOLDER / "nfs_exports/node.sh").read_text()


def test_a_share_that_never_mounts_ends_the_step_with_what_systemd_says(node: Shell) -> None:
    node.stub("timeout", "exit 124")
    node.stub("systemctl", "case $* in *Result*) echo timeout ;; esac")
    values = {
        **SERVER,
        "HEAD_ADDRESS": HEAD,
        "NFS_EXPORTS_RESTORED": "",
        "NFS_EXPORTS_MOUNT": str(node.root / "shared"),
    }
    commands = "trap 'echo \"$REASON\"' EXIT; SHARE_WAIT=0; nfs_exports_node"
    done = node.call(commands, values, "nfs_exports/node")
    assert done.returncode == 1
    assert f"the share {HEAD}:/export/shared does not mount" in done.stdout
    assert "systemd says: timeout" in done.stdout


@pytest.mark.parametrize(("server", "kept"), [(HEAD, True), ("100.64.0.9", False)])
def test_a_share_in_use_keeps_its_mount_and_gets_the_flags_unless_its_server_is_another_one(
    node: Shell, server: str, kept: bool
) -> None:
    (node.root / "shared/home").mkdir(parents=True)
    node.stub("findmnt", f"echo 'systemd-1 autofs'; echo '{server}:/export/shared nfs4'")
    assert mount(node).returncode == 0
    stops, remounts = ([call for call in node.calls if call.startswith(word)] for word in ("systemctl stop", "mount "))
    assert remounts == ([f"mount -i -o remount,bind,nosuid,nodev {node.root}/shared"] if kept else [])
    assert stops == ([] if kept else ["systemctl stop shared.automount shared.mount"])


# What is masked for the cluster, and given back.

MASKED = (
    "rpcbind.socket",
    "rpcbind.service",
    "rpc-statd.service",
    "rpc-statd-notify.service",
    "nfs-ganesha-lock.service",
)


def shown(*states: str) -> str:
    """What a systemd does that knows units by these states of their files."""
    said = (f"UnitFileState={state}\nActiveState={'' if state == 'enabled' else 'in'}active" for state in states)
    return "if [ $1 = show ]; then printf '%s\\n' '{}'; fi".format("\n\n".join(said))


@pytest.mark.parametrize("times", [1, 2])
def test_who_was_masked_stays_so_who_ran_runs_and_who_was_not_there_does_not_start_by_itself(
    shell: Shell, times: int
) -> None:
    shell.write("var/lib/tailrack/here", "")
    shell.stub("systemd-escape", "echo shared")
    shell.stub("findmnt")
    shell.stub("systemctl", shown("enabled", "", "masked", "static", ""))
    values = {"NFS_EXPORTS_MOUNT": str(shell.root / "shared"), "NODE_OPEN_PORTS": ""}
    for _ in range(times):
        done = shell.call("nfs_exports_machine", values, "nfs_exports/machine")
        assert done.returncode == 0, done.stderr
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
    assert shell.call("nfs_exports_leave", values, "nfs_exports/leave").returncode == 0
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


# What the head node's phase does besides.
SERVER_ALONE = "ensure_packages() { :; }; share_is_a_file_system() { :; }; " + "".join(
    f"{name}() {{ :; }}; " for name in ("ensure_share_here", "close_share", "keep_share_closed")
)


@pytest.mark.parametrize("masked", [False, True], ids=["first step", "the one before was cut off after the masks"])
@pytest.mark.parametrize("known", ["loaded", "masked"])
def test_systemd_knows_of_masks_before_the_server_brings_up_what_it_wants(
    shell: Shell, masked: bool, known: str
) -> None:
    shell.path("/var/lib/tailrack").mkdir(parents=True)
    units = shell.path("/etc/systemd/system")
    units.mkdir(parents=True)
    for unit in MASKED if masked else ():
        (units / unit).symlink_to("/dev/null")
    states = "\n\n".join([known, *["masked"] * 4])
    # The server does not run yet.
    shell.stub("systemctl", f'[ "$*" != "show -P LoadState {" ".join(MASKED)}" ] || echo "{states}"; [ $1 != -q ]')
    shell.stub("systemd-escape", "echo shared")
    for command in ("exportfs", "ss"):
        shell.stub(command)
    values = {"NFS_EXPORTS_MOUNT": "/shared", "NODE_OPEN_PORTS": "", "HEAD_KERNEL_NFS": "true", **SERVER}
    done = shell.call(
        f"{SERVER_ALONE} nfs_exports_machine; nfs_exports_head", values, "nfs_exports/machine", "nfs_exports/head"
    )
    assert done.returncode == 0, done.stderr
    told = [call for call in shell.calls if call in ("systemctl daemon-reload", "systemctl restart nfs-server")]
    assert told == ["systemctl daemon-reload", "systemctl restart nfs-server"]


def test_masks_of_a_release_that_noted_nothing_are_taken_away_too(shell: Shell) -> None:
    shell.write("var/lib/tailrack/here", "")
    shell.stub("systemd-escape", "echo shared")
    shell.stub("findmnt")
    shell.stub("systemctl", shown("masked", "", "masked", "masked", ""))
    shell.write("etc/systemd/system/shared.mount", "")
    values = {"NFS_EXPORTS_MOUNT": str(shell.root / "shared"), "NODE_OPEN_PORTS": ""}
    assert shell.call("nfs_exports_machine", values, "nfs_exports/machine").returncode == 0
    assert shell.call("nfs_exports_leave", values, "nfs_exports/leave").returncode == 0
    undone = [call for call in shell.calls if "unmask" in call]
    assert undone == [f"systemctl unmask -q --no-reload {unit}" for unit in MASKED]


def test_a_head_node_that_has_booted_since_leaves_no_mount_of_the_share(shell: Shell) -> None:
    # What tailrack-share mounts over the served directory shows at the other place too.
    shell.stub("systemd-escape", "echo shared")
    shell.stub("systemctl")
    shell.write("etc/systemd/system/shared.mount", "")
    mounts = shell.write("mounts", "1\n2\n")
    shell.stub("mountpoint", f'[ -s "{mounts}" ]')
    shell.stub("umount", f'sed -i 1d "{mounts}"')
    values = {"NFS_EXPORTS_MOUNT": str(shell.root / "shared")}
    assert shell.call("nfs_exports_leave", values, "nfs_exports/leave").returncode == 0
    assert mounts.read_text() == ""


def test_what_came_up_with_the_kernels_server_goes_with_it_and_what_ran_before_stays(shell: Shell) -> None:
    shell.stub("systemd-escape", "echo shared")
    shell.stub("systemctl")
    shell.write("etc/nfs.conf.d/tailrack.conf", "")
    noted = ("nfs-server disabled inactive", "nfsdcld.service not-found inactive", "run-rpc_pipefs.mount static active")
    shell.write("var/lib/tailrack/nfs-before", "".join(f"unit {line}\n" for line in noted))
    for _ in range(2):
        assert shell.call("nfs_exports_leave", {"NFS_EXPORTS_MOUNT": "/shared"}, "nfs_exports/leave").returncode == 0
    assert [call for call in shell.calls if call.startswith("systemctl stop")] == ["systemctl stop nfsdcld.service"]


def test_an_account_that_goes_while_the_share_is_left_does_not_take_the_stops_place(shell: Shell) -> None:
    # As systemd does it: a start that is asked for while a stop waits takes its place, and the stop fails.
    shell.stub("systemd-escape", "echo shared")
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
        done = shell.call("nfs_exports_leave", {"NFS_EXPORTS_MOUNT": str(shell.root / "shared")}, "nfs_exports/leave")
        assert done.returncode == 0, done.stderr
    assert not shell.path("etc/systemd/system/tailrack-share.path").exists()


# What others have of NFS here, and what is where the share is to be.


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine whose kernel has an NFS server, with nothing of others' NFS."""
    shell.write("proc/filesystems", "nodev\tnfsd\n")
    shell.write("etc/fstab", "# nas:/old /old nfs defaults 0 0\nUUID=1 / ext4 defaults 0 1\n")
    shell.write("var/lib/tailrack/here", "")
    shell.stub("systemd-escape", "echo shared")
    shell.stub("findmnt", "exit 1")
    shell.stub("pgrep", "exit 1")
    shell.stub("dpkg-query", "exit 1")
    return shell


def look(machine: Shell) -> subprocess.CompletedProcess[str]:
    values = {"NFS_EXPORTS_MOUNT": str(machine.root / "shared")}
    commands = 'trap \'echo "$REASON"\' EXIT; nfs_exports_check; echo "{$RESULT}"'
    return machine.call(commands, values, "nfs_exports/check")


def found(machine: Shell) -> list[int]:
    done = look(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    ports = json.loads(done.stdout.splitlines()[0])["open_ports"]
    assert isinstance(ports, list)
    return ports


SERVED, MOUNTED = [111, 2049, 20048], [111]


@pytest.mark.parametrize(
    ("path", "text", "ports"),
    [
        ("etc/exports", "/srv/projects 192.0.2.0/24(rw)\n", SERVED),
        ("etc/exports", "# /srv/projects 192.0.2.0/24(rw)\n\n", []),
        ("etc/exports.d/projects.exports", "/srv/projects 192.0.2.0/24(rw)\n", SERVED),
        ("etc/exports.d/tailrack-b1.exports", "/export/shared 100.64.0.7/32(rw)\n", []),
        ("etc/ganesha/ganesha.conf", "EXPORT { Path = /srv; }\n", SERVED),
        ("etc/ganesha/ganesha.conf", "# Written by tailrack\n", []),
        ("etc/fstab", "nas:/home /home nfs noauto,x-systemd.automount 0 0\n", MOUNTED),
        ("etc/fstab", "nas:/home /home nfs vers=3 0 0\n", MOUNTED),
        ("etc/fstab", "nas:/home /home nfs nfsvers=4.2 0 0\n", []),
        ("etc/fstab", "nas:/home /home nfs4 defaults 0 0\n", []),
        ("etc/auto.home", "*  -fstype=nfs,vers=3  nas:/home/&\n", MOUNTED),
        ("etc/auto.misc", "cd  -fstype=iso9660,ro  :/dev/cdrom\n", []),
        ("etc/systemd/system/multi-user.target.wants/autofs.service", "", MOUNTED),
        ("etc/systemd/system/home.mount", "[Mount]\nType=nfs\n", MOUNTED),
        ("etc/systemd/system/shared.mount", "[Unit]\nDescription=The cluster's share\n[Mount]\nType=nfs4\n", []),
    ],
)
def test_ports_that_others_need_are_found_by_what_is_configured_and_not_by_what_is_mounted_this_second(
    machine: Shell, path: str, text: str, ports: list[int]
) -> None:
    assert found(machine) == []
    machine.write(path, text)
    assert found(machine) == ports


@pytest.mark.parametrize("tool", ["findmnt", "pgrep"])
def test_a_mount_of_version_3_and_a_daemon_that_needs_rpcbind_are_found(machine: Shell, tool: str) -> None:
    machine.stub(tool, 'case "$*" in *vers=3* | *ypbind*) echo /home ;; *) exit 1 ;; esac')
    assert found(machine) == MOUNTED


def test_daemons_are_looked_for_in_words_that_an_older_pgrep_has_nothing_to_say_of(machine: Shell) -> None:
    machine.stub("pgrep", '[ "${#2}" -le 15 ] || echo "longer than 15 characters" >&2; exit 1')
    assert "longer than 15" not in look(machine).stderr


def test_what_others_need_is_not_masked_and_unmasked_where_it_was(machine: Shell) -> None:
    values = {"NFS_EXPORTS_MOUNT": "/shared", "NODE_OPEN_PORTS": ""}
    machine.stub("systemctl", shown("enabled", "", "masked", "static", ""))
    assert machine.call("nfs_exports_machine", values, "nfs_exports/machine").returncode == 0
    before = len(machine.calls)
    for _ in range(2):
        done = machine.call("nfs_exports_machine", {**values, "NODE_OPEN_PORTS": "111"}, "nfs_exports/machine")
        assert done.returncode == 0, done.stderr
    undone = [call for call in machine.calls[before:] if "mask" in call]
    assert undone == [f"systemctl unmask -q --no-reload {unit}" for unit in MASKED if unit != "rpc-statd.service"]


def in_the_way(machine: Shell) -> str:
    done = look(machine)
    if done.returncode == 0:
        return ""
    return re.sub(r".*cannot be mounted at .*, which is (.*) on this machine$", r"\1", done.stdout.splitlines()[-1])


def test_a_machine_whose_place_for_the_share_is_taken_is_refused_before_anything_is_changed(machine: Shell) -> None:
    share = machine.root / "shared"
    assert in_the_way(machine) == ""
    share.mkdir()
    assert in_the_way(machine) == ""
    (share / "thesis.tex").write_text("years of work")
    assert in_the_way(machine) == "a folder with files (thesis.tex)"
    (share / "thesis.tex").unlink()
    share.rmdir()
    share.symlink_to("/data")
    assert in_the_way(machine) == "a link"
    share.unlink()
    share.touch()
    assert in_the_way(machine) == "not a folder"
    share.unlink()
    machine.write("etc/fstab", f"nas:/vol {share} nfs4 noauto 0 0\n")
    assert in_the_way(machine) == "another mount (nas:/vol nfs4)"
    machine.stub("findmnt", 'case "$*" in *--mountpoint*) echo "lustre@tcp:/fs lustre" ;; *) exit 1 ;; esac')
    assert in_the_way(machine) == "another mount (lustre@tcp:/fs lustre)"


def test_the_clusters_own_share_is_in_nobodys_way_and_a_unit_of_others_is(machine: Shell) -> None:
    (machine.root / "shared").mkdir()
    (machine.root / "shared/home").mkdir()
    unit = "etc/systemd/system/shared.mount"
    machine.write(unit, "[Unit]\nDescription=Our department's share\n")
    assert in_the_way(machine) == "a folder with files (home)"
    for description in ("The cluster's share", "The cluster's share, on the machine that serves it"):
        machine.write(unit, f"[Unit]\nDescription={description}\n")
        assert in_the_way(machine) == ""
