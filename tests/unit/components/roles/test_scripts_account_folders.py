"""Accounts of daemons put links and FIFOs in the place of what is theirs: root's steps and programs meet them.

In the sandbox all accounts are one; that root reads as the account is seen by the calls. What real accounts meet is in
tests/unit/components/steps/test_folders.py and tests/lab/test_trust.py.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from components.roles.role import Value, template
from tests.unit.components.roles.test_scripts_idle_head import head_step
from tests.unit.shell import ROLES, Shell

KEY = "k" * 64
STATE, MUNGE_KEY = "/var/lib/slurm/slurmctld", "/etc/munge/munge.key"
BACKUP, STAGE = "/usr/local/sbin/tailrack-backup", "/var/lib/tailrack/backup-stage"
SAY = "trap 'echo \"${REASON:-}\"' EXIT; "

TRAPS = {
    "a link to a folder of root's": "ln -s {outside} {path}",
    "a link to a file of root's": "ln -s {outside}/file {path}",
    "a link to nothing": "ln -s {outside}/new {path}",
    "a FIFO": "mkfifo {path}",
}


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with a folder of root's that is no one else's."""
    shell.write("/root/outside/file", f"{KEY}\n").chmod(0o600)
    shell.path("/root/outside").chmod(0o711)
    return shell


def trap(shell: Shell, kind: str, path: str) -> None:
    """Put something in the place of a path."""
    shell.path(path).parent.mkdir(parents=True, exist_ok=True)
    command = TRAPS[kind].format(path=shell.path(path), outside=shell.path("/root/outside"))
    subprocess.run(["sh", "-c", command], check=True)


def outside(shell: Shell) -> list[tuple[str, int, str]]:
    """What lies in the folder of root's."""
    folder = shell.path("/root/outside")
    return [(path.name, path.stat().st_mode, path.read_text() if path.is_file() else "") for path in
            sorted([folder, *folder.iterdir()])]  # fmt: skip


def changed(shell: Shell) -> list[str]:
    """Calls that would give something to an account by a path that leads outside."""
    return [call for call in shell.calls if call.startswith("chown") and "/root/outside" in call]


@pytest.mark.parametrize("kind", TRAPS)
def test_the_head_node_stops_at_what_is_in_the_place_of_slurmctlds_folder(machine: Shell, kind: str) -> None:
    trap(machine, kind, STATE)
    machine.path("/var/log").mkdir(exist_ok=True)
    before = outside(machine)
    for name in ("slurmctld", "squeue", "scontrol"):
        machine.stub(name)
    done = head_step(machine, computes=False)
    assert done.returncode == 1
    assert outside(machine) == before
    assert changed(machine) == []
    assert not machine.path("/var/lib/tailrack/slurm").exists()


def test_the_clusters_name_is_read_as_slurms_account_and_a_fifo_holds_the_step_for_no_time(machine: Shell) -> None:
    machine.write(f"{STATE}/clustername", "other|4711\n")
    conf: dict[str, Value] = {"SLURM_SLURM_CONF": "ClusterName=lab"}
    machine.stub("stat", "echo slurm")
    done = machine.call(f"{SAY}refuse_another_cluster_name", conf, "slurm/head")
    assert "made as 'other'" in done.stdout
    assert f"runuser -u slurm -- cat -- {machine.path(STATE)}/clustername" in machine.calls


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize("name", ["munge.key", "munge.key.next"])
def test_a_join_stops_at_what_is_in_the_place_of_a_munge_key(machine: Shell, kind: str, name: str) -> None:
    trap(machine, kind, f"/etc/munge/{name}")
    before = outside(machine)
    for stub in ("munge", "unmunge"):
        machine.stub(stub)
    values: dict[str, Value] = {"MUNGE_KEY": KEY, "MUNGE_CLUSTER": "lab"}
    done = machine.call(f"{SAY}munge_join", values, "munge/join")
    assert done.returncode == 1
    assert f"/etc/munge/{name} is no plain file" in done.stdout
    assert outside(machine) == before
    assert changed(machine) == []


def test_munges_folder_is_roots_after_a_join_and_the_key_munges(machine: Shell) -> None:
    for stub in ("munge", "unmunge"):
        machine.stub(stub)
    values: dict[str, Value] = {"MUNGE_KEY": KEY, "MUNGE_CLUSTER": "lab"}
    done = machine.call(f"{SAY}munge_join", values, "munge/join")
    assert done.returncode == 0, done.stderr
    assert machine.path("/etc/munge").stat().st_mode & 0o777 == 0o711
    given = [call for call in machine.calls if call.startswith("chown munge")]
    assert [call.split(maxsplit=2)[1] for call in given] == ["munge:munge"]
    assert "/munge.key." in given[0], "the key alone, before it has its name"


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize("name", ["munge.key", "munge.key.next"])
def test_a_node_does_not_change_to_a_key_that_is_no_plain_file(machine: Shell, kind: str, name: str) -> None:
    trap(machine, kind, f"/etc/munge/{name}")
    if name.endswith("next"):
        machine.write(MUNGE_KEY, "old\n")
    before = outside(machine)
    for stub in ("munge", "pkill", "systemd-run"):
        machine.stub(stub)
    (munge,) = [role for role in ROLES if role.name == "munge"]
    (switch,) = [file.text for file in munge.files["node"] if file.path.endswith("munge-switch")]
    machine.write("/usr/local/lib/tailrack/munge-switch", machine.inside(switch)).chmod(0o755)
    digest = subprocess.run(["sha256sum"], input=f"{KEY}\n", capture_output=True, text=True, check=True).stdout.split()[
        0
    ]
    done = machine.program("/usr/local/lib/tailrack/munge-switch", digest)
    assert done.returncode == 1
    assert "is no plain file" in done.stderr
    assert outside(machine) == before
    assert "systemctl restart munge" not in machine.calls
    assert changed(machine) == []


def backup(shell: Shell, tar: str = 'shift 3; exec "$@"') -> subprocess.CompletedProcess[str]:
    """Make a backup of slurmctld's state; restic keeps the stage beside it."""
    shell.write(BACKUP, shell.inside(template("backup", "tailrack-backup"))).chmod(0o755)
    shell.write("/etc/tailrack/backup/cluster", "lab\n")
    shell.write("/etc/tailrack/backup/state", f"{shell.path(STATE)}\n")
    shell.write("/etc/tailrack/backup/repository", "sftp:x:/y\n")
    shell.stub("hostname", "echo head")
    shell.stub("sleep")
    shell.stub("runuser", tar)
    shell.stub("restic", f'[[ " $* " != *" backup "* ]] || cp -a . "{shell.root}/saved"')
    return shell.program(BACKUP, "run")


def saved(shell: Shell) -> dict[str, str]:
    """What the backup has, but for what it notes of itself."""
    files = [path for path in shell.path("/saved").rglob("*") if path.is_symlink() or not path.is_dir()]
    assert [path for path in files if path.is_symlink() or not path.is_file()] == []
    here = {str(path.relative_to(shell.path("/saved"))): path.read_text() for path in files}
    return {
        path.replace(str(shell.root).lstrip("/"), "").lstrip("/"): text
        for path, text in here.items()
        if path != "backup"
    }


def test_a_backup_reads_slurms_state_as_slurm_and_has_no_link_and_no_fifo_of_it(machine: Shell) -> None:
    job_state = machine.write(f"{STATE}/job_state", "jobs\n")
    os.utime(job_state, (1, 1))
    for number, kind in enumerate(TRAPS):
        trap(machine, kind, f"{STATE}/inner/trap{number}")
    done = backup(machine)
    assert done.returncode == 0, done.stderr
    assert saved(machine) == {"var/lib/slurm/slurmctld/job_state": "jobs\n"}
    assert [call.split(" -- ")[0] for call in machine.calls if call.startswith("runuser")] == ["runuser -u slurm"]


def test_an_account_that_forges_what_it_is_read_by_puts_nothing_beside_its_own_state(machine: Shell) -> None:
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


def test_a_head_node_made_of_a_backup_follows_no_link_in_it_and_none_that_is_in_the_way(machine: Shell) -> None:
    tree = "/var/lib/tailrack/restoring/tree"
    machine.write(f"{tree}{STATE}/job_state", "jobs\n")
    machine.path(f"{tree}{STATE}/out").symlink_to(machine.path("/root/outside"))
    trap(machine, "a link to a folder of root's", STATE)
    before = outside(machine)
    values: dict[str, Value] = {"NODE_ADOPT": True, "RESTORE_FROM": "latest", "BACKUP_CLUSTER": "lab"}
    names = (
        "REPOSITORY",
        "HOST",
        "USER",
        "PORT",
        "HOST_KEY",
        "PRIVATE_KEY",
        "PASSWORD",
        "SECRET_KEY",
        "ACCESS_KEY",
        "BUCKET",
        "S3_HOST",
    )
    values |= {f"BACKUP_{name}": "" for name in names} | {"NFS_EXPORTS_PATH": "/x", "NFS_EXPORTS_MOUNT": "/x"}
    for _ in range(2):
        done = machine.call("bring_back", values, "restore/restore")
        assert done.returncode == 0, done.stderr
        machine.path(f"{tree}{STATE}").mkdir(exist_ok=True)
    assert outside(machine) == before
    assert not machine.path(STATE).is_symlink()
    assert [path.name for path in machine.path(STATE).iterdir()] == ["job_state"]
    # What it holds is given to the account too, once, also where a package has given it the folder alone.
    machine.stub("install")
    machine.stub("stat", f"[ -e {machine.path('/var/lib/tailrack/slurm-restored')} ] && echo root || echo slurm")
    for _ in range(2):
        assert machine.call("give_slurm_state", {}, "slurm/folder").returncode == 0
    assert [call for call in machine.calls if call.startswith("chown -h slurm")] == [
        "chown -h slurm:slurm -- ./job_state"
    ]


@pytest.mark.parametrize("path", ["/var/lib/slurm/accounting", "/var/lib/slurm/accounting.new"])
def test_a_link_in_the_place_of_the_accountings_database_is_named_or_replaced(machine: Shell, path: str) -> None:
    trap(machine, "a link to a folder of root's", path)
    before = outside(machine)
    machine.stub("install", 'mkdir -p "${@: -1}"')
    machine.stub("mariadb-install-db", 'mkdir "${2#--datadir=}/mysql"')
    done = machine.call(f"{SAY}make_database", {"SLURM_RELEASE": ""}, "accounting/database")
    if path.endswith("new"):
        assert done.returncode == 0, done.stderr
        assert machine.path("/var/lib/slurm/accounting/mysql").is_dir()
    else:
        assert f"{machine.path(path)} is a link" in done.stdout
    assert outside(machine) == before


def test_root_is_no_client_of_the_accounts_database_whose_server_could_ask_it_for_files(machine: Shell) -> None:
    machine.write("/var/lib/tailrack/dumps/accounting.sql", "books\n")
    machine.write("/var/lib/slurm/accounting/slurm_acct_db/x", "")
    for name in ("mariadb", "mariadb-dump"):
        machine.stub(name)
    machine.write("/dump", machine.inside(template("accounting", "dump"))).chmod(0o755)
    assert machine.program("/dump", str(machine.root)).returncode == 0
    done = machine.call(
        "restore_database; jobs_recorded || :", {"SLURM_RELEASE": ""}, "accounting/database", "accounting/off"
    )
    assert done.returncode == 0, done.stderr
    asked = [call for call in machine.calls if call.startswith("runuser")]
    clients = [call for call in machine.calls if call.startswith("mariadb")]
    assert len(clients) == 3
    assert {call.split(" -- ")[0] for call in asked} == {"runuser -u slurm"}
    assert [call.split(" -- ")[1] for call in asked] == clients
    assert all("--user=slurm" in call for call in clients)


def test_log_ins_for_images_are_written_into_a_folder_of_roots(machine: Shell) -> None:
    values: dict[str, Value] = {
        "ENROOT_PYXIS_IMAGES": "",
        "ENROOT_PYXIS_CREDENTIALS": "machine x",
        "NFS_EXPORTS_PATH": "/x",
    }
    trap(machine, "a link to a file of root's", "/run/tailrack-images/.credentials")
    before = outside(machine)
    done = machine.call("lend_credentials", values, "enroot_pyxis/services")
    assert done.returncode == 0, done.stderr
    assert outside(machine) == before
    given = [call for call in machine.calls if call.startswith("chown tailrack-images")]
    assert len(given) == 1
    assert "/.credentials." in given[0], "the file alone, before it has its name"


def test_what_a_compiler_leaves_is_no_link_to_a_file_of_roots_on_the_share(machine: Shell) -> None:
    trap(machine, "a link to a file of root's", "/made/slurm-smd_24.11.5.deb")
    commands = f"{SAY}clear_build() {{ :; }}; publish_release {machine.path('/made')} {machine.path('/share')}/slurm"
    values: dict[str, Value] = {
        "SLURM_RELEASE": "24.11.5",
        "SLURM_RELEASE_SHA256": "x",
        "SLURM_RELEASE_OLDEST": "23.11",
    }
    machine.write("/var/log/tailrack/slurm-build.log", "")
    machine.write("/etc/os-release", "ID=debian\nVERSION_ID=13\n")
    machine.stub("dpkg", "echo amd64")
    values |= {"SLURM_RELEASE_PACKAGES_SHA256": ""}
    done = machine.call(commands, values, "slurm_release/build")
    assert done.returncode == 1
    assert done.stdout.strip().endswith("the packaging made no slurm-smd"), "not one that comes after it"
    assert not [*machine.path("/share").rglob("*.deb")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a folder of somebody else's")
def test_a_share_in_somebodys_folder_is_refused_before_a_home_is_made(machine: Shell) -> None:
    share = machine.root / "share"
    share.mkdir()
    os.chown(share, 1, 1)
    values: dict[str, Value] = {"USERS_LINES": [("ada", 6001, 6001)], "NFS_EXPORTS_PATH": str(share)}
    done = machine.call(f"{SAY}users_head", values, "users/head")
    assert f"the share's folder {share} is not root's" in done.stdout
    assert [*share.iterdir()] == []


def test_diagnose_reads_slurms_logs_as_the_owner_of_their_folder(machine: Shell) -> None:
    machine.write("/var/log/slurm/slurmctld.log", "a line\n")
    machine.stub("stat", "echo slurm")
    text = (Path(__file__).parents[4] / "driver" / "diagnose.sh").read_text(encoding="utf-8")
    done = machine.run(f"set +eu; {text}")
    assert "===== log slurmctld.log" in done.stdout
    assert "a line" in done.stdout
    assert any(call.startswith("runuser -u slurm -- tail ") for call in machine.calls)
