"""The program tailrack-share: which ways lead to the share on the machine that serves it, and who is kept out of it."""

from __future__ import annotations

import pytest

from components.roles.role import template
from tests.unit.shell import Shell

PROGRAM = "/usr/local/sbin/tailrack-share"
ROOT = "8:1 / rw,relatime /"
# A list of access as getfacl and setfacl have it, in a file.
GETFACL = "cat {acl}"
SETFACL = """while [ $# -gt 1 ]; do
    case $1 in
        -m) entry=${{2#u:}}; echo "user:$entry" >>{acl}; grep -q ^mask {acl} || echo mask::r-x >>{acl} ;;
        -x) case $2 in m) sed -i /^mask/d {acl} ;; *) sed -i "/^user:${{2#u:}}:/d" {acl} ;; esac ;;
    esac
    shift 2
done"""
PASSWD = (
    "root:x:0:0::/root:/bin/bash\nboss:x:1500:1500::/home/boss:/bin/bash\nada:x:6001:6001::/shared/home/ada:/bin/bash\n"
)


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with a share, mounts to be said by `mounted`, an account `boss` and the user ada."""
    shell.write(PROGRAM, shell.inside(template("nfs_exports", "tailrack-share"))).chmod(0o755)
    (shell.root / "export/share").mkdir(parents=True)
    shell.write("etc/tailrack/share", f"SHARE='{shell.root}/export/share'\nUSERS='6001 '\n")
    shell.write("etc/passwd", PASSWD + "nobody:x:65534:65534::/:/bin/false\n+::::::\n")
    shell.write("etc/group", "sudo:x:27:boss,dana\n")
    shell.write("var/lib/tailrack/users", "ada\n")
    acl = shell.write("acl", "user::rwx\ngroup::r-x\nother::r-x\n")
    shell.stub("getfacl", GETFACL.format(acl=acl))
    shell.stub("setfacl", SETFACL.format(acl=acl))
    # dana is of a directory that is not listed.
    shell.stub("id", "case $3 in dana) echo 7001 ;; ada) echo 6001 ;; boss) echo 1500 ;; *) exit 1 ;; esac")
    shell.stub("mount")
    shell.stub("umount")
    shell.stub("mountpoint")
    shell.stub("tac", "cat $1")
    mounted(shell, ROOT)
    return shell


def mounted(shell: Shell, *lines: str) -> None:
    """What findmnt shows: device, folder of the file system, flags, place; of this machine, whose root is a folder."""
    rows = [line.rsplit(" ", 1) for line in lines]
    table = "\n".join(f"{rest} {str(shell.root) + place.rstrip('/')}" for rest, place in rows)
    shell.stub("findmnt", f"case $* in *-T*) {LONGEST} ;; *) cat ;; esac <<'END'\n{table}\nEND")


# The last of the longest places that the asked one lies in.
LONGEST = """awk -v asked="${@: -1}/" 'index(asked, $4 "/") == 1 && length($4) >= length(best) {best = $4}
END {print best}'"""


def closed(shell: Shell) -> list[str]:
    """Close the share; the mounts that were made or changed, without the root of the machine."""
    before = len(shell.calls)
    done = shell.program(PROGRAM, "close")
    assert done.returncode == 0, done.stderr
    made = [call for call in shell.calls[before:] if call.startswith("mount ")]
    return [call.replace(str(shell.root), "") for call in made]


def bound(place: str) -> str:
    return f"mount -o bind,nosuid,nodev {place} {place}"


def flagged(place: str, flags: str = "rw,relatime") -> str:
    return f"mount -i -o remount,bind,{flags},nosuid,nodev {place}"


@pytest.mark.parametrize(
    ("mounts", "done"),
    [
        ([ROOT], [bound("/export/share")]),
        ([ROOT, "8:1 /export/share rw,nosuid,nodev /export/share"], []),
        ([ROOT, "8:16 / rw,noexec /export/share"], [flagged("/export/share", "rw,noexec")]),
        ([ROOT, "8:16 / rw,nodev /export/share"], [flagged("/export/share", "rw,nodev")]),
        ([ROOT, "8:16 / rw /export"], [bound("/export/share")]),
        (
            [ROOT, "8:16 / rw,nosuid,nodev /export/share", "8:16 / rw,relatime /shared"],
            [flagged("/shared")],
        ),
        (
            [ROOT, "8:16 /share rw,nosuid,nodev /export/share", "8:16 / rw,relatime /disk"],
            [bound("/disk/share")],
        ),
        (
            [ROOT, "8:16 /share rw,nosuid,nodev /export/share", "8:16 /share/home rw,relatime /people"],
            [flagged("/people")],
        ),
        (
            [ROOT, "8:16 / rw,nosuid,nodev /export/share", "8:32 / rw,relatime /disk", "8:32 /x rw /export/share/y"],
            [flagged("/export/share/y", "rw")],
        ),
    ],
    ids=[
        "a folder of the root file system", "closed already", "a disk of its own", "one of the two flags",
        "a folder of a disk", "the share bound elsewhere", "the disk around it", "a part of it",
        "another disk, and one within the share",
    ],
)  # fmt: skip
def test_every_way_to_the_share_is_without_set_uid_programs_and_no_other_mount_is_touched(
    machine: Shell, mounts: list[str], done: list[str]
) -> None:
    for place in ("disk/share", "people", "shared", "export/share/y"):
        (machine.root / place).mkdir(parents=True, exist_ok=True)
    mounted(machine, *mounts)
    assert closed(machine) == done


def entries(machine: Shell) -> list[str]:
    return [line for line in (machine.root / "acl").read_text().splitlines() if line[:5] in {"user:", "mask:"}][1:]


def test_who_is_no_user_of_the_cluster_is_kept_out_by_account_or_by_group(machine: Shell) -> None:
    closed(machine)
    assert set(entries(machine)) == {"user:1500:---", "user:7001:---", "mask::r-x"}
    closed(machine)
    assert len([call for call in machine.calls if call.startswith("setfacl")]) == 1


def test_who_becomes_a_user_is_let_in_and_who_was_one_is_not_kept_out(machine: Shell) -> None:
    closed(machine)
    machine.write("etc/tailrack/share", f"SHARE='{machine.root}/export/share'\nUSERS='1500 '\n")
    closed(machine)
    assert set(entries(machine)) == {"user:7001:---", "mask::r-x"}


def test_what_the_owner_of_a_machine_lets_an_account_do_stays(machine: Shell) -> None:
    own = "user:1500:r-x\n"
    (machine.root / "acl").write_text(f"user::rwx\n{own}group::r-x\nmask::r-x\nother::r-x\n")
    closed(machine)
    assert machine.program(PROGRAM, "open").returncode == 0
    assert set(entries(machine)) == {"user:1500:r-x", "mask::r-x"}


def test_opening_leaves_no_entry_no_mount_and_no_flag_of_ours(machine: Shell) -> None:
    mounted(machine, ROOT, "8:16 / rw,relatime /export/share")
    closed(machine)
    mounted(machine, ROOT)
    closed(machine)
    before = len(machine.calls)
    assert machine.program(PROGRAM, "open").returncode == 0
    calls = [call.replace(str(machine.root), "") for call in machine.calls[before:]]
    assert "umount -l /export/share" in calls
    assert "mount -i -o remount,bind,suid,dev,rw,relatime /export/share" in calls
    assert entries(machine) == []
    assert not machine.path("/var/lib/tailrack/share").exists()


def test_a_file_system_without_lists_of_access_is_refused_with_what_to_do(machine: Shell) -> None:
    machine.stub("setfacl", "echo 'setfacl: /export/share: Operation not supported' >&2; exit 1")
    done = machine.program(PROGRAM, "close")
    assert done.returncode == 1
    assert "POSIX ACLs" in done.stderr
