"""The share: who may mount it, what works on it from the far site, whose files they are."""

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.lab.cluster import ClusterUnderTest, as_user, eventually
from tests.lab.run_step import run_python

MEMBERS = ("a1", "b1")
EXPORT, MOUNT = "/export/shared", "/shared"
# The last is what the helper says where nothing answers: the port is closed on that network.
REFUSED = re.compile(r"NFS4ERR_(NOENT|ACCESS|PERM)|access denied|nfs_service failed")


@pytest.fixture
def folder(cluster: ClusterUnderTest) -> Iterator[str]:
    """A new folder in the user's home, as a path below the share; made on b1, over the relay."""
    path = cluster.run_as("ada", "b1", "mktemp -d -p ~").strip().removeprefix(f"{MOUNT}/")
    yield path
    cluster.run_as("ada", "b1", f"rm -rf {MOUNT}/{path}")


def on_far_node(cluster: ClusterUnderTest, folder: str, command: str) -> str:
    """Run a command on b1 as the user, in the folder."""
    return cluster.run_as("ada", "b1", f"set -e; cd {MOUNT}/{folder}; {command}")


def on_server(cluster: ClusterUnderTest, folder: str, command: str) -> str:
    """Run a command where the files really are, in the folder."""
    return cluster.run("head", f"set -e; cd {EXPORT}/{folder}; {command}")


def address(cluster: ClusterUnderTest, node: str, interface: str) -> str:
    """A node's IPv4 address on an interface."""
    return cluster.run(node, f"ip -4 -o address show dev {interface}").split()[3].split("/")[0]


def mount_elsewhere(cluster: ClusterUnderTest, node: str, server: str) -> str:
    """Try a new mount of the share and take it away again; return what mount said, empty when it went well."""
    place = "place=$(mktemp -d); trap 'rmdir $place' EXIT"
    mount = f"mount -t nfs4 -o retry=0,nfsvers=4.2 {server}:{EXPORT} $place && ls $place/home && umount $place"
    tried = cluster.attempt(node, f"{place}; {mount}", limit=30)
    assert (tried.returncode == 0) == (tried.stderr == ""), tried
    return tried.stderr


def apply_exports(cluster: ClusterUnderTest) -> None:
    """Have the server take the export files as they are, in the way of the program's own steps."""
    kernel = cluster.attempt("head", "grep -qw nfsd /proc/filesystems || modprobe -n nfsd").returncode == 0
    call = "kernel_server.ensure_kernel_server('head')" if kernel else f"ganesha.ensure_ganesha('{EXPORT}')"
    call_on(cluster, "head", f"from components.roles.storage.share import ganesha, kernel_server; {call}")


def test_the_head_keeps_one_export_file_a_member_with_its_one_address(cluster: ClusterUnderTest) -> None:
    files = cluster.run("head", "cd /etc/exports.d && grep -H '' *").splitlines()
    assert files == [
        f"tailrack-{node}.exports:{EXPORT} {address(cluster, node, 'tailscale0')}/32"
        "(rw,sync,secure,root_squash,no_subtree_check)"
        for node in MEMBERS
    ]


def test_a_member_mounts_the_share_by_its_tailnet_address_alone(cluster: ClusterUnderTest) -> None:
    assert mount_elsewhere(cluster, "a1", address(cluster, "head", "tailscale0")) == ""
    # The same machines over their own network: the server then sees an address that no member has.
    assert REFUSED.search(mount_elsewhere(cluster, "a1", address(cluster, "head", "eth0")))


def test_a_machine_of_the_tailnet_that_is_no_member_cannot_mount_the_share(cluster: ClusterUnderTest) -> None:
    # The head node has the files and needs no export.
    assert REFUSED.search(mount_elsewhere(cluster, "head", address(cluster, "head", "tailscale0")))


def test_a_node_without_its_export_file_cannot_mount_and_the_others_can(cluster: ClusterUnderTest) -> None:
    server = address(cluster, "head", "tailscale0")
    file, aside = "/etc/exports.d/tailrack-a1.exports", "/root/aside"
    cluster.run("head", f"mv {file} {aside}")
    try:
        apply_exports(cluster)
        eventually(lambda: bool(REFUSED.search(mount_elsewhere(cluster, "a1", server))), 60, "a1 is refused")
        assert mount_elsewhere(cluster, "b1", server) == ""
    finally:
        cluster.run("head", f"mv {aside} {file}")
        apply_exports(cluster)
    eventually(lambda: mount_elsewhere(cluster, "a1", server) == "", 60, "a1 may mount again")
    assert cluster.run_as("ada", "a1", "ls -d ~") == f"{MOUNT}/home/ada\n"


def test_what_a_user_does_on_a_far_node_is_so_on_the_server(cluster: ClusterUnderTest, folder: str) -> None:
    for number, (does, prints, look, shows) in enumerate((
        ("echo one >file; cat file; echo two >>file; cat file", "one\none\ntwo\n", "cat file", "one\ntwo\n"),
        ("echo new >file; echo old >target; echo x >gone; mv file target; rm gone", "", "ls; cat target",
         "target\nnew\n"),
        ("touch file; chmod 0751 file; stat -c %a file", "751\n", "stat -c %a file", "751\n"),
        ("printf abcdef >short; truncate -s 3 short; printf ab >long; truncate -s 4 long", "",
         "cat short; od -An -c long", "abc   a   b  \\0  \\0\n"),
        ("echo text >file; ln -s file soft; ln file hard; cat soft hard", "text\ntext\n",
         "readlink soft; stat -c %h file; [ file -ef hard ] && echo same", "file\n2\nsame\n"),
        ("mkdir -p kept/inner gone; rmdir gone; rmdir kept 2>&1 | grep -o 'Directory not empty'",
         "Directory not empty\n", "find . -mindepth 1 | sort", "./kept\n./kept/inner\n"),
        ("touch file; mkdir inner", "", "stat -c %u:%g file inner", "6001:6001\n6001:6001\n"),
    )):  # fmt: skip
        assert on_far_node(cluster, folder, f"mkdir {number}; cd {number}; {does}") == prints, does
        assert on_server(cluster, f"{folder}/{number}", look) == shows, does


def test_a_file_keeps_the_time_it_is_given_until_it_is_written(cluster: ClusterUnderTest, folder: str) -> None:
    on_far_node(cluster, folder, "touch -d @1000000000 kept; touch -d @1000000000 written; echo x >>written")
    kept, written, now = on_server(cluster, folder, "stat -c %Y kept written; date +%s").split()
    assert kept == "1000000000"
    assert abs(int(now) - int(written)) < 60


def test_root_of_a_node_has_no_rights_on_the_share(cluster: ClusterUnderTest, folder: str) -> None:
    on_far_node(cluster, folder, "echo private >file; chmod 0600 file")
    assert cluster.attempt("b1", f"cat {MOUNT}/{folder}/file").returncode != 0
    assert cluster.attempt("b1", f"echo root >{MOUNT}/{folder}/file").returncode != 0
    assert on_server(cluster, folder, "cat file") == "private\n"
    # Where anybody may write, root's file is not root's.
    made = cluster.run("b1", f"mktemp -p {MOUNT}/scratch").strip()
    assert cluster.run("head", f"stat -c %u:%g {made}") == "65534:65534\n"
    cluster.run("head", f"rm {made}")


def test_a_user_cannot_read_another_users_private_file(cluster: ClusterUnderTest) -> None:
    made = cluster.run_as("ada", "b1", f"file=$(mktemp -p {MOUNT}/scratch); echo mine >$file; echo $file").strip()
    for node in ("a1", "b1"):
        refused = cluster.attempt(node, as_user("bob", f"cat {made}"))
        assert refused.returncode == 1
        assert "Permission denied" in refused.stderr
        assert cluster.run_as("ada", node, f"cat {made}") == "mine\n"
    # The directory is open to bob: only the file is not.
    cluster.run_as("ada", "b1", f"chmod 0644 {made}")
    eventually(lambda: cluster.attempt("a1", as_user("bob", f"cat {made}")).stdout == "mine\n", 15, "bob may read it")
    cluster.run_as("ada", "b1", f"rm {made}")


@pytest.mark.proof
def test_a_large_file_written_over_the_relay_is_the_same_on_every_node(cluster: ClusterUnderTest, folder: str) -> None:
    written = on_far_node(
        cluster, folder, "head -c 64M /dev/urandom | tee >(sha256sum >sum) >file; sync file; stat -c %s file; cat sum"
    )
    size, digest, _ = written.split()
    assert int(size) == 64 * 2**20
    assert cluster.run("head", f"sha256sum <{EXPORT}/{folder}/file").split()[0] == digest
    assert cluster.run_as("ada", "a1", f"sha256sum <{MOUNT}/{folder}/file").split()[0] == digest


def test_one_site_sees_the_others_writes_within_seconds(cluster: ClusterUnderTest, folder: str) -> None:
    path = f"{MOUNT}/{folder}/file"
    # b1 has looked and knows that it is not there.
    assert cluster.attempt("b1", as_user("ada", f"cat {path}")).returncode == 1
    for text in ("first", "second"):
        cluster.run_as("ada", "a1", f"echo {text} >{path}")
        seen = as_user("ada", f"cat {path}")
        eventually(lambda: cluster.attempt("b1", seen).stdout == f"{text}\n", 15, f"b1 sees {text}")  # noqa: B023


def test_nodes_see_the_head_nodes_writes_and_removals_within_seconds(cluster: ClusterUnderTest, folder: str) -> None:
    listing = as_user("ada", f"cd {MOUNT}/{folder}; ls; cat *")
    cluster.run_as("ada", "head", f"cd {MOUNT}/{folder}; echo >gone; touch kept")
    # The server and b1 have looked at both.
    assert cluster.attempt("b1", listing).stdout == "gone\nkept\n\n"
    cluster.run_as("ada", "head", f"cd {MOUNT}/{folder}; rm gone; echo text >kept")
    eventually(lambda: cluster.attempt("b1", listing).stdout == "kept\ntext\n", 15, "b1 sees what is there")


def test_a_node_creates_a_file_that_the_head_node_has_just_removed(cluster: ClusterUnderTest, folder: str) -> None:
    # The node remembers the name for a second, nfs-ganesha for up to two.
    for pause in (0, 1, 1.3):
        cluster.run_as("ada", "b1", f"cd {MOUNT}/{folder}; echo old >out; cat out")
        on_server(cluster, folder, f"rm out; sleep {pause}")
        cluster.run_as("ada", "b1", f"cd {MOUNT}/{folder}; echo new >out")
        assert on_server(cluster, folder, "cat out") == "new\n"


def test_the_mount_comes_back_by_itself(cluster: ClusterUnderTest) -> None:
    def mounted() -> bool:
        return len(cluster.run("b1", f"findmnt -n -o FSTYPE {MOUNT}").split()) == 2

    assert mounted()
    # Somebody may just be looking into it.
    eventually(lambda: cluster.attempt("b1", f"umount {MOUNT}").returncode == 0, 60, "nobody is in the share")
    assert not mounted()
    assert cluster.run_as("ada", "b1", "pwd") == f"{MOUNT}/home/ada\n"
    assert mounted()


def test_the_mount_waits_for_the_tailnet_and_for_a_server_that_is_away(cluster: ClusterUnderTest) -> None:
    for node in MEMBERS:
        unit = cluster.run(node, "systemctl cat shared.mount")
        assert "\nOptions=hard,nosuid,nodev,nfsvers=4.2,_netdev\n" in unit
        for wanted in ("After", "Requires"):
            shown = cluster.run(node, f"systemctl show shared.mount -p {wanted} --value")
            assert "tailrack-tailnet.service" in shown.split(), node
        assert cluster.run(node, "systemctl is-enabled shared.automount") == "enabled\n"


def flags(cluster: ClusterUnderTest, node: str, place: str) -> set[str]:
    """The flags of what is mounted at a place of a machine, systemd's waiting for the first use apart."""
    lines = cluster.run(node, f"findmnt -n -o FSTYPE,VFS-OPTIONS --mountpoint {place}").splitlines()
    return set(next(line for line in lines if not line.startswith("autofs")).split()[1].split(","))


def call_on(cluster: ClusterUnderTest, node: str, code: str) -> None:
    """Call a role's function on a machine, as the program's own steps do."""
    done = run_python(cluster, node, f"from components.node.step.step import Step; {code}")
    assert done.returncode == 0, done.stderr


def close_share(cluster: ClusterUnderTest, **uids: int) -> None:
    """Close the share on the head node to everybody but these users."""
    accounts = ", ".join(f"Account({name!r}, {uid}, {uid})" for name, uid in uids.items())
    names = "from components.roles.access.users.accounts import Account"
    close = "from components.roles.storage.share.host import close_share"
    call_on(cluster, "head", f"{names}; {close}; close_share(Step('head', 'test'), {EXPORT!r}, [{accounts}])")


@pytest.fixture
def boss(cluster: ClusterUnderTest) -> Iterator[str]:
    """An account of the head node with sudo, made after the last `up`, that is no user of the cluster."""
    cluster.run("head", "useradd -m -s /bin/bash -u 1500 -G sudo boss")
    yield "boss"
    cluster.run("head", "userdel -r boss")


@pytest.fixture(params=["boss", "bob"])
def planted(cluster: ClusterUnderTest, boss: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A set-uid program on the share: of an account of the head's or, as root of a node makes one, of a user's."""
    if request.param == boss:
        cluster.run("head", f"install -o boss -g boss -m 6755 /usr/bin/id {EXPORT}/scratch/planted")
    else:
        make = "setpriv --reuid 6002 --regid 6002 --clear-groups install -m 6755 /tmp/id planted"
        cluster.run("b1", f"cp /usr/bin/id /tmp/id; cd {MOUNT}/scratch; {make}")
    assert (
        cluster.run("head", f"stat -c %a:%U:%G {EXPORT}/scratch/planted") == f"6755:{request.param}:{request.param}\n"
    )
    yield "scratch/planted"
    cluster.run("head", f"rm {EXPORT}/scratch/planted")


def test_every_mount_of_the_share_is_without_set_uid_programs_and_devices(cluster: ClusterUnderTest) -> None:
    for node, place in (("head", EXPORT), ("head", MOUNT), ("a1", MOUNT), ("b1", MOUNT)):
        assert flags(cluster, node, place) >= {"nosuid", "nodev"}, (node, place)


def test_a_set_uid_program_on_the_share_gives_no_rights_on_the_head(cluster: ClusterUnderTest, planted: str) -> None:
    for place in (EXPORT, MOUNT):
        assert cluster.run_as("ada", "head", f"{place}/{planted}").startswith(
            "uid=6001(ada) gid=6001(ada) groups=6001(ada)"
        )
        # A namespace of the user's own shows the share no other way.
        unshared = cluster.attempt("head", as_user("ada", f"unshare -rm {place}/{planted}"))
        assert not {"1500", "6002"} & set(re.findall(r"\d+", unshared.stdout))
        assert cluster.attempt("head", as_user("ada", f"unshare -rm sh -c 'umount {place}'")).returncode != 0


def test_an_account_of_the_head_that_is_no_user_does_not_meet_files_of_its_own_on_the_share(
    cluster: ClusterUnderTest, planted: str
) -> None:
    for path in (EXPORT, MOUNT, f"{MOUNT}/{planted}", f"{EXPORT}/home"):
        met = as_user("boss", f"stat {path}/.")
        eventually(lambda: "Permission denied" in cluster.attempt("head", met).stderr, 60, f"no way to {path}")  # noqa: B023
    # Who is a user goes in and out; so does root of a node, who is nobody there.
    assert cluster.run_as("bob", "head", "pwd") == f"{MOUNT}/home/bob\n"
    assert cluster.run("b1", f"ls {MOUNT}").split() == ["home", "scratch"]


def test_root_of_a_node_makes_no_file_of_an_account_of_the_head(cluster: ClusterUnderTest, boss: str) -> None:
    touch = (
        f"setpriv --reuid 1500 --regid 1500 --clear-groups touch {MOUNT}/scratch/of-boss; rm -f {MOUNT}/scratch/of-boss"
    )
    eventually(lambda: "Permission denied" in cluster.attempt("b1", touch).stderr, 60, "its uid is refused")


@pytest.fixture
def made_last(cluster: ClusterUnderTest) -> Iterator[str]:
    """An account that is made when the share's service has looked at all accounts, and has not ended yet."""
    late = "useradd -u 1501 late"
    folder = "/run/systemd/system/tailrack-share.service.d"
    cluster.run(
        "head", f"mkdir -p {folder} && printf '[Service]\\nExecStartPost=-/usr/sbin/{late}\\n' >{folder}/late.conf"
    )
    cluster.run("head", "systemctl daemon-reload && systemctl restart tailrack-share.service")
    yield "late"
    cluster.run("head", f"rm -r {folder}; systemctl daemon-reload; userdel late")


def test_an_account_that_is_made_in_the_last_moment_is_kept_out_too(cluster: ClusterUnderTest, made_last: str) -> None:
    met = as_user(made_last, f"ls {MOUNT}")
    eventually(lambda: "Permission denied" in cluster.attempt("head", met).stderr, 60, "the account is kept out")


def test_an_account_that_becomes_a_user_is_let_in(cluster: ClusterUnderTest, boss: str) -> None:
    met = as_user("boss", f"ls {MOUNT}")
    eventually(lambda: cluster.attempt("head", met).returncode != 0, 60, "the account is kept out")
    users = cluster.run("head", "sed -n \"s/^USERS='\\(.*\\) '/\\1/p\" /etc/tailrack/share").split()
    assert users == ["6001", "6002"]
    for more in ({"boss": 1500}, {}):
        close_share(cluster, ada=6001, bob=6002, **more)
        assert (cluster.attempt("head", met).returncode == 0) == bool(more)


def test_a_busy_share_gets_its_flags_in_place(cluster: ClusterUnderTest) -> None:
    """As somebody mounted it, with a job at work there."""
    node, places = "head", (EXPORT, MOUNT)
    # The account of the test before may have just gone, which closes the share anew: one after the other, as a
    # start that is asked for meanwhile takes a stop's place.
    for unit in ("tailrack-share.path", "tailrack-share-again", "tailrack-share"):
        cluster.run(node, f"systemctl stop {unit}")
    cluster.run_as("ada", node, "cd ~ && (exec -a at-work sleep 300 >/dev/null 2>&1 </dev/null &)")
    for place in places:
        cluster.run(node, f"mount -i -o remount,bind,rw,suid,dev {place}")
        assert not flags(cluster, node, place) & {"nosuid", "nodev"}
    close_share(cluster, ada=6001, bob=6002)
    for place in places:
        assert flags(cluster, node, place) >= {"nosuid", "nodev"}
    assert cluster.run(node, "readlink /proc/$(pgrep -f ^at-work)/cwd") == f"{MOUNT}/home/ada\n"
    cluster.run(node, "pkill -f ^at-work")
    cluster.run(node, "systemctl start tailrack-share.path")


@pytest.mark.proof
def test_a_first_mount_that_takes_longer_than_half_a_minute_is_waited_for(cluster: ClusterUnderTest) -> None:
    """A helper that mounts when it is let, and a user who waits for the home meanwhile."""
    helper, let = "/usr/sbin/mount.nfs4", "/run/let-mount"
    played = f'#!/bin/sh\nuntil [ -e {let} ]; do sleep 0.2; done\nexec {helper}.real "$@"\n'
    cluster.run("b1", f"mv {helper} {helper}.real && printf %s {shlex.quote(played)} >{helper} && chmod 0755 {helper}")
    try:
        cluster.run("b1", "systemctl stop shared.mount")
        cluster.run("b1", f"stat {MOUNT}/home >/tmp/waits 2>&1 </dev/null & disown")
        age = "ps -o etimes= -p $(pgrep -o -f ^/bin/sh.*mount.nfs4)"
        eventually(
            lambda: int(cluster.attempt("b1", age).stdout or 0) > 32, 45, "the mount goes on after half a minute"
        )
        cluster.run("b1", f"touch {let}")
        eventually(lambda: "File: /shared/home" in cluster.run("b1", "cat /tmp/waits"), 60, "who waited is served")
    finally:
        cluster.run("b1", f"mv {helper}.real {helper}; rm -f {let} /tmp/waits")
