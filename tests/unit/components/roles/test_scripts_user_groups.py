"""Role user_groups: groups of the config on a machine, their members, their folders on the head node, and clashes."""

import json
import subprocess

import pytest

from components.node import files
from components.roles.role import Value
from components.steps.composition import CHECK
from tests.unit.shell import Shell, script_of

# Change a file of groups as the real programs do: `add` or `remove` a member in the group's last field.
GPASSWD = """case "$1" in
    -a) sed -i -E "s/^($3:.*:)(.*)$/\\1\\2,$2/; s/:,/:/" "{groups}" ;;
    -d) sed -i -E "/^$3:/ {{ s/([:,])$2(,|$)/\\1\\2/; s/,+/,/; s/:,/:/; s/,$// }}" "{groups}" ;;
esac"""
FOLDER = "/export/groups/vision"


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with the accounts of ada, bob and ops; tailrack has created the first two."""
    rows = ("ada:x:6001", "bob:x:6002", "ops:x:1000")
    shell.write("etc/passwd", "".join(f"{row}:{row[-4:]}::/home:/bin/sh\n" for row in rows))
    groups = shell.write("etc/group", "ada:x:6001:\nbob:x:6002:\nops:x:1000:\n")
    shell.write("var/lib/tailrack/users", "ada\nbob\n")
    shell.stub("groupadd", f'echo "$3:x:$2:" >>"{groups}"')
    shell.stub("groupmod", f'sed -i -E "s/^($3:x:)[0-9]+/\\1$2/" "{groups}"')
    shell.stub("groupdel", f'sed -i "/^$1:/d" "{groups}"')
    shell.stub("gpasswd", GPASSWD.format(groups=groups))
    shell.stub("setfacl")
    return shell


def run(
    machine: Shell,
    *phases: str,
    groups: str = "vision 7001",
    members: str = "",
    users: str = "ada 6001 6001",
    rc: int = 0,
) -> subprocess.CompletedProcess[str]:
    values: dict[str, Value] = {
        "user_groups_lines": [row for row in groups.split("; ") if row],
        "user_groups_members": [f"vision {name}" for name in members.split()],
        "users_lines": users.split("; "),
        "share_path": "/export",
        "share_node": "",
    }
    done = machine.step(script_of("user_groups", *phases), values)
    assert done.returncode == rc, done.stderr
    return done


def row(machine: Shell, group: str = "vision") -> str:
    lines = machine.path("/etc/group").read_text().splitlines()
    return next((line for line in lines if line.startswith(f"{group}:")), "")


def test_a_group_has_its_gid_and_members_and_stays_empty_when_it_leaves_the_config(machine: Shell) -> None:
    run(machine, *CHECK, members="ada bob")
    assert machine.calls == []
    run(machine, "machine", members="ada bob")
    assert row(machine) == "vision:x:7001:ada,bob"
    run(machine, "machine", groups="")
    assert row(machine) == "vision:x:7001:"
    run(machine, "machine", members="ada")
    assert row(machine) == "vision:x:7001:ada"
    assert len([call for call in machine.calls if call.startswith("groupadd")]) == 1


def test_a_removed_member_leaves_the_group_and_other_accounts_stay(machine: Shell) -> None:
    machine.write("/etc/group", "ada:x:6001:\nvision:x:7001:ops\n")
    run(machine, "machine", members="ada bob")
    assert row(machine) == "vision:x:7001:ops,ada,bob"
    run(machine, "machine", members="ada")
    assert row(machine) == "vision:x:7001:ops,ada"


def test_a_step_that_was_cut_off_is_completed_by_the_next(machine: Shell) -> None:
    # The names were recorded, and the group was created without members.
    machine.write("var/lib/tailrack/user-groups", "vision\n")
    machine.write("var/lib/tailrack/user-groups-made", "vision\n")
    run(machine, "machine", members="ada")
    assert row(machine) == "vision:x:7001:ada"


@pytest.mark.parametrize("phase", [CHECK, ("machine",)], ids=["check", "machine"])
@pytest.mark.parametrize(
    ("present", "message"),
    [
        ("vision:x:7005:", "group vision has gid 7005 here and should have 7001"),
        ("robots:x:7001:", "gid 7001 is the group robots here and should be vision"),
    ],
)
def test_a_group_that_clashes_is_refused(machine: Shell, phase: tuple[str, ...], present: str, message: str) -> None:
    machine.write("/etc/group", f"{present}\n")
    done = run(machine, *phase, members="ada", rc=1)
    assert message in done.stderr
    assert "choose other names and gids in tailrack:groups" in done.stderr
    assert machine.calls == []


def test_a_gid_can_change_while_the_group_has_no_files(machine: Shell) -> None:
    run(machine, "machine", members="ada")
    machine.path(FOLDER).mkdir(parents=True)
    run(machine, *CHECK, groups="vision 7002")
    run(machine, "machine", groups="vision 7002", members="ada")
    assert row(machine) == "vision:x:7002:ada"
    machine.write(f"{FOLDER}/notes", "ours")
    done = run(machine, *CHECK, groups="vision 7003", rc=1)
    assert f"group vision cannot change from gid 7002 to 7003: {FOLDER} has files of it" in done.stderr


def test_a_new_user_gets_no_files_of_a_former_group(machine: Shell) -> None:
    run(machine, "machine", members="ada")
    number, name = (run(machine, *CHECK, groups="", users=user, rc=1) for user in ("eve 7001 7001", "vision 6009 6009"))
    assert "gid 7001 of user eve is the former group vision here" in number.stderr
    assert "user vision has the name of a former group here" in name.stderr


def test_each_group_has_a_folder_with_group_writable_new_files_that_stays(machine: Shell) -> None:
    assert json.loads(run(machine, "head").stdout) == {"left_groups": []}
    assert machine.path(FOLDER).stat().st_mode & 0o7777 == 0o2770
    assert (machine.owners["/export/groups"], machine.owners[FOLDER]) == (("root", "root"), ("root", "7001"))
    assert machine.calls == [f"setfacl -d -m u::rwx,g::rwx,o::--- -- {machine.path(FOLDER)}"]
    run(machine, "machine", "head")
    machine.write(f"{FOLDER}/notes", "ours")
    done = run(machine, "machine", "head", groups="")
    assert json.loads(done.stdout) == {"left_groups": ["vision"]}
    assert machine.path(f"{FOLDER}/notes").read_text() == "ours"


def test_a_folder_that_is_a_link_a_file_or_anothers_is_refused(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("/export/groups").mkdir(parents=True)
    place = machine.path(FOLDER)
    for make in (lambda: place.symlink_to("/etc"), place.touch):
        make()
        assert f"{FOLDER} is a link or a file and must be a folder" in run(machine, "head", rc=1).stderr
        place.unlink()
    assert not machine.calls
    monkeypatch.setattr(files, "owner_of", lambda path: "ada")
    done = run(machine, "head", rc=1)
    assert "/export/groups belongs to ada and must be a folder of root's, for tailrack:groups" in done.stderr


def test_a_file_system_without_acls_is_named(machine: Shell) -> None:
    machine.stub("setfacl", "echo 'Operation not supported' >&2; exit 1")
    assert f"cannot set a default ACL on {FOLDER}" in run(machine, "head", rc=1).stderr


def test_a_machine_that_leaves_loses_the_groups_that_tailrack_created(machine: Shell) -> None:
    machine.write("/etc/group", "ada:x:6001:\nnlp:x:7002:\n")
    run(machine, "machine", groups="vision 7001; nlp 7002")
    run(machine, "leave")
    assert row(machine) == ""
    assert row(machine, "nlp") == "nlp:x:7002:"
