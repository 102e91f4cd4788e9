"""slurmctld's account puts links in its state: a backup of the head node, and one that is made of a backup."""

import io
import os
import tarfile
from unittest import mock

import pytest

from components.roles.slurm.slurm.folders import give_slurm_state
from components.roles.storage.backup import program
from components.roles.storage.restore.host import place_files
from tests.unit.shell import Shell
from tests.unit.traps import TRAPS, guarded, outside, trap

STATE = "/var/lib/slurm/slurmctld"


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with a folder of root's that is no one else's."""
    return guarded(shell)


def backup(shell: Shell, tar: str = 'shift 3; exec "$@"') -> int:
    """Make a backup of slurmctld's state; restic keeps the stage beside it."""
    shell.write("/etc/tailrack/backup/cluster", "lab\n")
    shell.write("/etc/tailrack/backup/state", f"{STATE}\n")
    shell.write("/etc/tailrack/backup/repository", "sftp:x:/y\n")
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
