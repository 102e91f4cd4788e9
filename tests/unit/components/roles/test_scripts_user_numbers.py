"""A user whose uid changes in the config: an account that nobody has used is created again, any other is refused."""

import subprocess

import pytest

from components.roles.containers.enroot_pyxis.enroot import remove_files_of
from components.roles.role import Value
from components.steps.composition import CHECK
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of

HOME = "export/home/bob"


@pytest.fixture
def head(shell: Shell) -> Shell:
    """A head node with the account of bob, uid 6002, as tailrack created it, and the new home of it."""
    accounts = shell.write("etc/passwd", "bob:x:6002:6002::/shared/home/bob:/bin/bash\n")
    groups = shell.write("etc/group", "bob:x:6002:\n")
    shell.stub("userdel", f'sed -i "/^$1:/d" "{accounts}"')
    shell.stub("groupdel", f'sed -i "/^$1:/d" "{groups}"')
    shell.stub("useradd", f'echo "bob:x:${{7}}:6003::/shared/home/bob:/bin/bash" >>"{accounts}"')
    shell.stub("groupadd", f'echo "$3:x:$2:" >>"{groups}"')
    shell.stub("usermod")
    shell.stub("pgrep", "exit 1")
    shell.write("var/lib/tailrack/users", "bob\n")
    shell.write("var/lib/tailrack/groups", "bob\n")
    shell.write("etc/skel/.profile", "umask 027\n")
    shell.write(f"{HOME}/.profile", "umask 027\n")
    for name, text in (("id_ed25519", "private"), ("id_ed25519.pub", "public"), ("authorized_keys", "public")):
        shell.write(f"{HOME}/.ssh/{name}", f"{text}\n")
    return shell


def run(shell: Shell, *phases: str, path: str = "/export", homes: str = "") -> subprocess.CompletedProcess[str]:
    users: dict[str, Value] = {"users_lines": ["bob 6003 6003"], "users_homes": homes}
    share: dict[str, Value] = {"share_mount": "/shared", "share_path": path}
    return shell.step(script_of("users", *phases), {**users, **share}, name="head-prepare")


def test_an_unused_account_gets_the_new_uid_with_a_new_group_and_home(head: Shell) -> None:
    head.write("etc/tailrack/containers", "SHARED=/shared\nLOCAL=/var/lib/enroot\n")
    head.stub("setpriv", 'shift 4; exec "$@"')
    images = [head.write(f"var/lib/enroot/{name}/a", "") for name in ("users/user-6002", "imported/user-6002-bob")]
    assert run(head, *CHECK).returncode == 0
    assert head.path("etc/passwd").read_text().startswith("bob:x:6002:")
    assert_ok(run(head, "machine"))
    assert not any(image.exists() for image in images), "the next user 6002 would find them"
    assert not head.path(HOME).exists()
    changes = [call.split()[0] for call in head.calls if call.split()[0].endswith(("add", "del"))]
    assert changes == ["userdel", "groupdel", "groupadd", "useradd"]
    assert run(head, "machine").returncode == 0


def test_the_log_names_images_of_an_account_that_cannot_be_removed(
    head: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    head.write("etc/tailrack/containers", "SHARED=/shared\nLOCAL=/var/lib/enroot\n")
    head.stub("setpriv", 'shift 4; exec "$@"')
    image = head.write("var/lib/enroot/users/user-6002/own/a", "")
    head.stub("rm", "exit 1")
    head.call(remove_files_of, "bob")
    assert f"could not remove files of bob: {image.parent} {image}\n" in capsys.readouterr().err


def test_the_step_rejects_and_keeps_an_account_with_a_file_in_its_home(head: Shell) -> None:
    for name in (".bash_history", "thesis/chapter-1.tex", ".ssh/known_hosts", ".ssh/authorized_keys", ".profile"):
        head.write(f"{HOME}/{name}", "mine\n")
        for phases in (CHECK, ("machine",)):
            assert_fails(run(head, *phases), "user bob has uid 6002 here and should have 6003")
        assert head.path(f"{HOME}/{name}").read_text() == "mine\n", name
        assert not any(call.startswith(("userdel", "groupdel")) for call in head.calls), name


def test_an_account_with_processes_or_on_a_machine_that_cannot_list_them_is_refused(head: Shell) -> None:
    # A home on another server counts as used, as does one that root or a time limit hides.
    assert run(head, *CHECK, homes="/homes").returncode == 0
    head.path("homes/bob").mkdir(parents=True)
    assert_fails(run(head, *CHECK, homes="/homes"), "user bob has uid 6002 here and should have 6003")
    head.path("homes/bob").rmdir()
    head.stub("stat", "echo 'stat: cannot statx: Permission denied' >&2; exit 1")
    assert run(head, *CHECK, homes="/homes").returncode == 1
    for status in (0, 2, 127):
        head.stub("pgrep", f"exit {status}")
        assert run(head, *CHECK).returncode == 1, status
    assert head.path(HOME).exists()
