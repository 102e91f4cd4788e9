"""The program tailrack-share: which ways lead to the share on the machine that serves it, and who is kept out of it."""

from types import SimpleNamespace

import pytest

from components.node.folders import Acl
from components.roles.storage.share import protect
from tests.unit.shell import Shell, assert_fails, assert_ok

ROOT = "8:1 / rw,relatime /"
PASSWD = (
    "root:x:0:0::/root:/bin/bash\nboss:x:1500:1500::/home/boss:/bin/bash\nada:x:6001:6001::/shared/home/ada:/bin/bash\n"
)
# A list of access as getfacl and setfacl have it, in a file.
SETFACL = """while [ $# -gt 1 ]; do
    case $1 in
        -m) entry=${{2#u:}}; echo "user:$entry" >>{acl}; grep -q ^mask {acl} || echo mask::r-x >>{acl} ;;
        -x) case $2 in m) sed -i /^mask/d {acl} ;; *) sed -i "/^user:${{2#u:}}:/d" {acl} ;; esac ;;
    esac
    shift 2
done"""


@pytest.fixture
def machine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A machine with a share, mounts to be said by `mounted`, an account `boss` and the user ada."""
    (shell.root / "export/share").mkdir(parents=True)
    settings(shell, "6001 ")
    shell.write("etc/passwd", PASSWD + "nobody:x:65534:65534::/:/bin/false\n+::::::\n")
    shell.write("etc/group", "sudo:x:27:boss,dana\n")
    shell.write("var/lib/tailrack/users", "ada\n")
    acl = shell.write("acl", "user::rwx\ngroup::r-x\nother::r-x\n")
    shell.stub("setfacl", SETFACL.format(acl=acl))
    monkeypatch.setattr(protect, "acl_of", lambda _: listed(acl.read_text()))
    # dana is of a directory that is not listed.
    uids = {"dana": 7001, "ada": 6001, "boss": 1500}
    monkeypatch.setattr(protect, "user_named", lambda name: name in uids and SimpleNamespace(pw_uid=uids[name]))
    shell.stubs("mount", "umount")
    mounted(shell, ROOT)
    return shell


def settings(shell: Shell, users: str) -> None:
    shell.write("etc/tailrack/share", f"# Written by tailrack.\nSHARE='/export/share'\nUSERS='{users}'\n")


def listed(text: str) -> Acl:
    """The named users of a list."""
    rows = (line.split(":") for line in text.splitlines() if line.startswith("user:"))
    return Acl({int(uid): 0 if rights == "---" else 5 for _, uid, rights in rows if uid}, {})


def mounted(shell: Shell, *lines: str) -> None:
    """What the kernel shows: device, folder of the file system, flags, place."""
    rows = (line.split(" ") for line in lines)
    table = [f"30 1 {device} {root} {place} {flags} - ext4 disk rw\n" for device, root, flags, place in rows]
    shell.write("proc/self/mountinfo", "".join(table))


def closed(shell: Shell) -> list[str]:
    """Close the share; the mounts that were made or changed, without the root of the machine."""
    before = len(shell.calls)
    assert_ok(shell.command("share", "close"))
    return [call for call in shell.calls[before:] if call.startswith("mount ")]


def bound(place: str) -> str:
    return f"mount -o bind,nosuid,nodev {place} {place}"


def flagged(place: str, flags: str = "rw,relatime") -> str:
    return f"mount -i -o remount,bind,{flags},nosuid,nodev {place}"


def test_no_way_to_the_share_allows_set_uid_programs(machine: Shell) -> None:
    own, part = (f"8:16 {folder} rw,nosuid,nodev /export/share" for folder in ("/", "/share"))
    for place in ("disk/share", "people", "shared", "export/share/y"):
        (machine.root / place).mkdir(parents=True, exist_ok=True)
    for mounts, done in (
        ([ROOT], [bound("/export/share")]),
        ([ROOT, "8:1 /export/share rw,nosuid,nodev /export/share"], []),
        ([ROOT, "8:16 / rw,noexec /export/share"], [flagged("/export/share", "rw,noexec")]),
        ([ROOT, "8:16 / rw,nodev /export/share"], [flagged("/export/share", "rw,nodev")]),
        ([ROOT, "8:16 / rw /export"], [bound("/export/share")]),
        # The share is bound elsewhere; then the disk around it, a part of it, and another disk within it.
        ([ROOT, own, "8:16 / rw,relatime /shared"], [flagged("/shared")]),
        ([ROOT, part, "8:16 / rw,relatime /disk"], [bound("/disk/share")]),
        ([ROOT, part, "8:16 /share/home rw,relatime /people"], [flagged("/people")]),
        ([ROOT, own, "8:32 / rw,relatime /disk", "8:32 /x rw /export/share/y"], [flagged("/export/share/y", "rw")]),
    ):
        mounted(machine, *mounts)
        assert closed(machine) == done, mounts


def entries(machine: Shell) -> list[str]:
    return [line for line in (machine.root / "acl").read_text().splitlines() if line[:5] in {"user:", "mask:"}][1:]


def test_the_share_denies_access_to_accounts_and_groups_outside_the_cluster(machine: Shell) -> None:
    closed(machine)
    assert set(entries(machine)) == {"user:1500:---", "user:7001:---", "mask::r-x"}
    closed(machine)
    assert len([call for call in machine.calls if call.startswith("setfacl")]) == 1
    assert machine.path(protect.CLOSED).exists()


def test_opening_leaves_no_entry_no_mount_and_no_flag_of_ours(machine: Shell) -> None:
    mounted(machine, ROOT, "8:16 / rw,relatime /export/share")
    closed(machine)
    mounted(machine, ROOT)
    closed(machine)
    mounted(machine, ROOT, "8:16 / rw,nosuid,nodev /export/share")
    before = len(machine.calls)
    assert machine.command("share", "open").returncode == 0
    calls = machine.calls[before:]
    assert "umount -l /export/share" in calls
    assert "mount -i -o remount,bind,suid,dev,rw,relatime /export/share" in calls
    assert entries(machine) == []
    assert not machine.path("/var/lib/tailrack/share").exists()


def test_the_share_rejects_a_file_system_without_acls_with_a_remedy(machine: Shell) -> None:
    machine.stub("setfacl", "echo 'setfacl: /export/share: Operation not supported' >&2; exit 1")
    assert_fails(machine.command("share", "close"), "POSIX ACLs")
    assert not machine.path(protect.CLOSED).exists(), "the minute's task repeats what failed"
