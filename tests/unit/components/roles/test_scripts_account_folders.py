"""Accounts of daemons put links and FIFOs in the place of what is theirs: root's steps, programs and backups meet them.

In the sandbox all accounts are one; that root reads as the account is seen by the calls. What real accounts meet is in
tests/unit/components/steps/test_folders.py and tests/lab/test_trust_changes.py.
"""

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path
from unittest import mock

import pytest

from components.node import files, folders
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.access.users.accounts import Account, UsersValues
from components.roles.access.users.host import head, make_homes
from components.roles.containers.enroot_pyxis.host import write_logins
from components.roles.jobs.mlflow.host import leave as mlflow_leave
from components.roles.role import template
from components.roles.slurm.accounting.database import make_database, restore_dump
from components.roles.slurm.accounting.host import jobs_recorded
from components.roles.slurm.accounting.host import leave as leave_accounting
from components.roles.slurm.munge.host import JoinValues, join
from components.roles.slurm.munge.host import leave as munge_leave
from components.roles.slurm.slurm.folders import give_slurm_state
from components.roles.slurm.slurm.host import leave, refuse_another_cluster_name
from components.roles.slurm.slurm_release.build import Build
from components.roles.slurm.slurm_release.release import Release, ReleaseValues
from components.roles.storage.backup import program
from components.roles.storage.restore.host import place_files
from tests.unit.components.roles.test_scripts_idle_head import head_step
from tests.unit.shell import Shell, assert_fails
from tests.unit.traps import KEY, TRAPS, changed, guarded, outside, trap

STATE, MUNGE_KEY = "/var/lib/slurm/slurmctld", "/etc/munge/munge.key"


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with a folder of root's that is no one else's."""
    return guarded(shell)


@pytest.mark.parametrize("kind", TRAPS)
def test_the_head_node_stops_at_an_unsafe_slurmctld_folder(machine: Shell, kind: str) -> None:
    trap(machine, kind, STATE)
    machine.path("/var/log").mkdir(exist_ok=True)
    before = outside(machine)
    machine.stubs("slurmctld", "squeue", "scontrol")
    done = head_step(machine, computes=False)
    assert done.returncode == 1
    assert outside(machine) == before
    assert changed(machine) == []
    assert not machine.path("/var/lib/tailrack/slurm").exists()


def test_the_clusters_name_is_read_as_slurms_account_and_a_fifo_holds_the_step_for_no_time(machine: Shell) -> None:
    machine.write(f"{STATE}/clustername", "other|4711\n")
    # As the packages make the folders, and as a head node has them.
    for folder in ("/var/lib/slurm", STATE):
        owners = {folder: "slurm"}
        with (
            machine.here(),
            mock.patch.object(files, "owner_of", lambda path, owners=owners: owners.get(path, "root")),
            pytest.raises(Failure, match="created as 'other'"),
        ):
            refuse_another_cluster_name(Step("head", "head-head"), "ClusterName=lab")
    assert f"runuser -u slurm -- cat -- {machine.path(STATE)}/clustername" in machine.calls


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize("name", ["munge.key", "munge.key.next"])
def test_a_join_stops_at_an_unsafe_munge_key_file(machine: Shell, kind: str, name: str) -> None:
    trap(machine, kind, f"/etc/munge/{name}")
    before = outside(machine)
    machine.stubs("munge", "unmunge")
    with machine.here(), pytest.raises(Failure, match=f"^/etc/munge/{name} is not a regular file"):
        join(Step("a1", "a1-prepare"), JoinValues("lab", "1", KEY))
    assert outside(machine) == before
    assert changed(machine) == []


def test_munges_folder_is_roots_after_a_join_and_the_key_munges(machine: Shell) -> None:
    machine.stubs("munge", "unmunge")
    machine.write("/etc/passwd", "munge:x:110:110::/:/usr/sbin/nologin\n")
    machine.call(join, Step("a1", "a1-prepare"), JoinValues("lab", "1", KEY))
    assert machine.path("/etc/munge").stat().st_mode & 0o777 == 0o711
    given = {path: owner for path, owner in machine.owners.items() if owner != ("root", "root")}
    assert given == {MUNGE_KEY: ("munge", "munge")}


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize("name", ["munge.key", "munge.key.next"])
def test_a_node_does_not_change_to_a_key_that_is_no_plain_file(machine: Shell, kind: str, name: str) -> None:
    trap(machine, kind, f"/etc/munge/{name}")
    if name.endswith("next"):
        machine.write(MUNGE_KEY, "old\n")
    before = outside(machine)
    machine.stubs("munge", "pkill", "systemd-run")
    digest = hashlib.sha256(f"{KEY}\n".encode()).hexdigest()
    assert_fails(machine.command("munge-switch", digest), "is not a regular file")
    assert outside(machine) == before
    assert "systemctl restart munge" not in machine.calls
    assert changed(machine) == []


@pytest.mark.parametrize("path", ["/var/lib/slurm/accounting", "/var/lib/slurm/accounting.new"])
def test_a_link_in_the_place_of_the_accountings_database_is_named_or_replaced(machine: Shell, path: str) -> None:
    trap(machine, "a link to a folder of root's", path)
    before = outside(machine)
    machine.stub("mariadb-install-db", 'mkdir "${2#--datadir=}/mysql"')
    with machine.here():
        if path.endswith("new"):
            make_database(Step("head", "head-services"))
            assert machine.path("/var/lib/slurm/accounting/mysql").is_dir()
            make_database(Step("head", "head-services"))
            assert sum(call.startswith("mariadb-install-db") for call in machine.calls) == 1
        else:
            with pytest.raises(Failure, match=f"{path} is a link"):
                make_database(Step("head", "head-services"))
    assert outside(machine) == before


def test_root_never_connects_to_the_accounting_database(machine: Shell) -> None:
    machine.write("/var/lib/tailrack/dumps/accounting.sql", "books\n")
    machine.write("/var/lib/slurm/accounting/slurm_acct_db/x", "")
    machine.stubs("mariadb", "mariadb-dump")
    dump = template("accounting", "dump").replace("as_user slurm 800 1000000000000", "runuser -u slurm --")
    machine.write("/dump", machine.inside(dump)).chmod(0o755)
    assert machine.program("/dump", str(machine.root)).returncode == 0
    machine.stub("mariadb", f"cat >>{machine.root}/loaded; echo lab_job_table")
    with machine.here():
        restore_dump(Step("head", "head-services"))
        assert not jobs_recorded()
    assert machine.path("/loaded").read_text() == "books\nSELECT 1 FROM slurm_acct_db.`lab_job_table` LIMIT 1;\n"
    assert not machine.path("/var/lib/tailrack/dumps/accounting.sql").exists()
    asked = [call for call in machine.calls if call.startswith("runuser")]
    clients = [call for call in machine.calls if call.startswith("mariadb")]
    assert len(clients) == 4
    assert {call.split(" -- ")[0] for call in asked} == {"runuser -u slurm"}
    assert [call.split(" -- ")[1] for call in asked if " -- mariadb" in call] == clients
    assert all("--user=slurm" in call for call in clients)


def test_a_cluster_that_leaves_empties_gives_away_and_removes_nothing_through_a_link(machine: Shell) -> None:
    link = "a link to a folder of root's"
    for path in (STATE, "/var/lib/slurm/accounting", "/var/lib/tailrack-mlflow", "/export/mlflow"):
        trap(machine, link, path)
    trap(machine, "a link to a file of root's", MUNGE_KEY)
    machine.write("/var/lib/tailrack/munge.digests", "")
    for unit in ("slurmctld.service.d/tailrack.conf", "tailrack-database.service", "tailrack-mlflow.service"):
        machine.write(f"/etc/systemd/system/{unit}", "")
    machine.write("/var/lib/tailrack/mlflow/artifacts", "/export/mlflow\n")
    accounts = ("tailrack-mlflow:x:999:999", "slurm:x:64030:64030", "munge:x:110:110")
    machine.write("/etc/passwd", "".join(f"{account}::/:/usr/sbin/nologin\n" for account in accounts))
    for name in ("pkill", "pgrep", "userdel", "mariadb"):
        machine.stub(name, "exit 1" if name == "pgrep" else "")
    before = outside(machine)
    with machine.here():
        for phase in (leave, leave_accounting, munge_leave, mlflow_leave):
            phase(Step("head", "tailrack-leave"))
    assert machine.owners["/var/lib/slurm"] == ("slurm", "slurm"), "as the packages have it"
    assert machine.owners["/etc/munge"] == ("munge", "munge")
    assert outside(machine) == before
    assert changed(machine) == []
    assert not machine.path(MUNGE_KEY).is_symlink()


def test_log_ins_for_images_are_written_into_a_folder_of_roots(machine: Shell) -> None:
    trap(machine, "a link to a file of root's", "/run/tailrack-images/.credentials")
    before = outside(machine)
    machine.call(write_logins, "machine x")
    assert outside(machine) == before
    assert machine.owners["/run/tailrack-images"] == ("root", "root")
    assert machine.owners["/run/tailrack-images/.credentials"] == ("tailrack-images", "tailrack-images")


def test_the_build_publishes_no_link_to_a_file_of_root(machine: Shell) -> None:
    trap(machine, "a link to a file of root's", "/made/slurm-smd_24.11.5.deb")
    machine.write("/etc/os-release", "ID=debian\nVERSION_ID=13\n")
    machine.stub("dpkg", "echo amd64")
    release = Release("a1", ReleaseValues("24.11.5", "x", "", ""), {})
    with machine.here():
        files.make_folder("/share")
        # Not one that comes after it.
        with pytest.raises(Failure, match=r"the packaging made no slurm-smd$"):
            Build(release, io.BytesIO()).publish("/made", "/share/slurm")
    assert not [*machine.path("/share").rglob("*.deb")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a folder of somebody else's")
def test_a_share_in_somebodys_folder_is_refused_before_a_home_is_made(machine: Shell) -> None:
    share = machine.root / "share"
    share.mkdir()
    os.chown(share, 1, 1)
    values = UsersValues([Account("ada", 6001, 6001)], "/shared", "/share", "")
    problem = machine.failure_of(head, Step("head", "head-head"), values)
    assert "the share's folder /share does not belong to root" in problem
    assert [*share.iterdir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a folder of somebody else's")
@pytest.mark.parametrize("sticky", [False, True])
def test_homes_on_another_server_are_made_by_root_or_by_their_users(machine: Shell, sticky: bool) -> None:
    folder = machine.root / "nas/homes"
    folder.mkdir(parents=True)
    folder.chmod(0o1777 if sticky else 0o755)
    machine.write("/etc/skel/.profile", "")
    # A user's command was cut off before.
    machine.write("/nas/homes/ada.new/.half", "")
    # The server squashes root in the first case, and lets users make folders in the second.
    machine.stub("runuser", 'shift 3; case $* in *homes/bob*) exit 1 ;; esac; "$@"' if sticky else "exit 1")
    values = UsersValues([Account("ada", 6001, 6001), Account("bob", 6002, 6002)], "/shared", "/share", "/nas/homes")
    os.chown(shutil.copytree("/etc/skel", folder / "bob"), 1, 1)
    with mock.patch.object(files, "make_folder", side_effect=PermissionError):
        problem = machine.failure_of(make_homes, values, "head")
        # The server may hide the homes from root.
        hidden = mock.patch.object(folders, "lstat", side_effect=PermissionError)
        with hidden, mock.patch("components.roles.access.users.host._require_closed"):
            assert machine.failure_of(make_homes, values, "head") == problem
    names, name = ("bob", "bob") if sticky else ("ada, bob", "ada")
    assert f"no home in /nas/homes that belongs to {names}, and neither root nor the user may make one" in problem
    assert f"{name}'; then run up again" in problem
    assert {path.name for path in folder.glob("ada/.*")} == ({".profile", ".ssh"} if sticky else set())
    for place in (folder, folder.parent):
        place.chmod(0o777)
        problem = machine.failure_of(make_homes, values, "head")
        assert f"/{place.relative_to(machine.root)} is not root's, or others can replace the homes" in problem
        place.chmod(0o755)


def test_a_home_on_the_share_appears_whole(machine: Shell) -> None:
    values = UsersValues([Account("ada", 6001, 6001)], "/shared", "/share", "")
    machine.stub("runuser", "exit 1")
    assert "ada cannot write to /share/home/ada.new" in machine.failure_of(make_homes, values, "head")
    assert not machine.path("/share/home/ada").exists()


def test_diagnose_reads_slurms_logs_as_the_owner_of_their_folder(machine: Shell) -> None:
    machine.write("/var/log/slurm/slurmctld.log", "a line\n")
    machine.stub("stat", "echo slurm")
    text = (Path(__file__).parents[4] / "cli" / "head" / "diagnose.sh").read_text(encoding="utf-8")
    done = machine.run(f"set +eu; {text}")
    assert "===== log slurmctld.log" in done.stdout
    assert "a line" in done.stdout
    assert any(call.startswith("runuser -u slurm -- tail ") for call in machine.calls)


def backup(shell: Shell, tar: str = 'shift 3; exec "$@"') -> int:
    """Make a backup of slurmctld's state; restic keeps the stage beside it."""
    for name, text in (("cluster", "lab"), ("state", STATE), ("repository", "sftp:x:/y")):
        shell.write(f"/etc/tailrack/backup/{name}", f"{text}\n")
    shell.path("/var/lib/tailrack").mkdir(parents=True, exist_ok=True)
    for name in ("tar", "find", "mv", "rm"):
        (shell.root / "stubs" / name).unlink(missing_ok=True)
        (shell.root / "stubs" / name).symlink_to(f"/usr/bin/{name}")
    shell.stub("runuser", tar)
    shell.stub("restic", f'[[ " $* " != *" backup "* ]] || cp -a . "{shell.root}/saved"')
    with shell.here(), mock.patch("time.sleep"):
        return program.main(["run"])


def saved(shell: Shell) -> dict[str, str]:
    """What the backup has, but for what it notes of itself."""
    folder, root = shell.path("/saved"), str(shell.root).lstrip("/")
    plain = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    assert [path for path in plain if path.is_symlink() or not path.is_file()] == []
    texts = {str(path.relative_to(folder)): path.read_text() for path in plain if path != folder / "backup"}
    return {path.replace(root, "").lstrip("/"): text for path, text in texts.items()}


def test_a_backup_reads_slurms_state_as_slurm_and_has_no_link_and_no_fifo_of_it(machine: Shell) -> None:
    job_state = machine.write(f"{STATE}/job_state", "jobs\n")
    os.utime(job_state, (1, 1))
    for number, kind in enumerate(TRAPS):
        trap(machine, kind, f"{STATE}/inner/trap{number}")
    assert backup(machine) == 0
    assert saved(machine) == {"var/lib/slurm/slurmctld/job_state": "jobs\n"}
    assert [call.split(" -- ")[0] for call in machine.calls if call.startswith("runuser")] == ["runuser -u slurm"]


def test_a_forged_archive_writes_only_inside_the_slurmctld_state(machine: Shell) -> None:
    os.utime(machine.write(f"{STATE}/job_state", "jobs\n"), (1, 1))
    forged = io.BytesIO()
    with tarfile.open(fileobj=forged, mode="w") as archive:
        for name, link in {
            "slurmctld/job_state": None, "../backup": None, "slurmctld/../../backup": None, "tree/backup": None,
            "var/lib/tailrack/ssh_authority": None, "slurmctld/out": str(machine.path("/root/outside")),
            "slurmctld/out/file": None, "slurmctld/up": "../../..", "slurmctld/up/backup": None,
        }.items():  # fmt: skip
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
            member.size = 0 if link else 7
            archive.addfile(member, None if link else io.BytesIO(b"forged\n"))
    machine.path("/forged.tar").write_bytes(forged.getvalue())
    before = outside(machine)
    backup(machine, f'cat "{machine.root}/forged.tar"')
    assert outside(machine) == before
    # It is refused, or has slurm's own alone.
    if machine.path("/saved").exists():
        assert all(path.startswith("var/lib/slurm/slurmctld/") for path in saved(machine))
        assert "cluster=lab" in machine.path("/saved/backup").read_text()


def test_a_restored_head_node_follows_no_link(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = "/var/lib/tailrack/restoring/tree"
    machine.write(f"{tree}{STATE}/job_state", "jobs\n")
    machine.path(f"{tree}{STATE}/out").symlink_to(machine.path("/root/outside"))
    trap(machine, "a link to a folder of root's", STATE)
    before = outside(machine)
    for _ in range(2):
        machine.call(place_files, tree, adopt=True)
        machine.path(f"{tree}{STATE}").mkdir(exist_ok=True)
    assert outside(machine) == before
    assert not machine.path(STATE).is_symlink()
    assert [path.name for path in machine.path(STATE).iterdir()] == ["job_state"]
    # What it holds is given to the account too, once, also where a package has given it the folder alone.
    restored, given = machine.path("/var/lib/tailrack/slurm-restored"), []
    monkeypatch.setattr("components.node.folders._give_contents", lambda path, account: given.append((path, account)))
    monkeypatch.setattr(
        "components.node.files.owner_of", lambda path: "slurm" if path == STATE and not restored.exists() else "root"
    )
    for _ in range(2):
        machine.call(give_slurm_state)
    assert given == [(STATE, "slurm")]
