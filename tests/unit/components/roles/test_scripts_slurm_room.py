"""Room for slurmctld's state on a full disk, and no start from a state that lacks its last changes."""

import os
import subprocess

import pytest

from components.roles.slurm.slurm import room
from tests.unit.shell import Shell, assert_ok

STATE = "/var/lib/slurm/slurmctld"
ROOM, SAVED, UNSAVED = f"{STATE}/tailrack-room", f"{STATE}/tailrack-saved", f"{STATE}/tailrack-unsaved"
MIB = 2**20


@pytest.fixture
def head(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A head node whose slurmctld runs and has written its state; `free` says how much room there is."""
    shell.write(f"{STATE}/job_state", "jobs")
    shell.write(SAVED, "")
    monkeypatch.setattr(room, "free", lambda _: int(shell.path("free").read_text()))
    shell.stub("fallocate", ': >"$3"')
    shell.write("/proc/41/comm", "bash\n")
    shell.write("/proc/42/comm", "slurmctld\n")
    shell.write("/proc/42/status", f"Name:\tslurmctld\nUid:\t0\t{os.geteuid()}\t0\t0\n")

    def end(_seconds: float) -> None:
        raise RuntimeError("one look, and an end")

    monkeypatch.setattr(room, "sleep", end)
    free(shell, 1000)
    return shell


def free(head: Shell, mib: float) -> None:
    head.write("free", f"{int(mib * MIB)}\n")


def look(head: Shell) -> str:
    """One look of what keeps the room; what it says."""
    done = head.command("slurm-room", "keep")
    assert "one look, and an end" in done.stderr
    return done.stdout


def written_again(head: Shell) -> None:
    """slurmctld writes its state after all that was until now."""
    now = head.path(UNSAVED).stat().st_mtime + 5
    os.utime(head.path(f"{STATE}/job_state"), (now, now))


def check(head: Shell) -> subprocess.CompletedProcess[str]:
    return head.command("slurm-room", "check")


def test_slurmctld_reserves_disk_space_and_releases_it_when_the_disk_is_full(head: Shell) -> None:
    free(head, 100)
    assert look(head) == ""
    assert not head.path(ROOM).exists()
    free(head, 200)
    look(head)
    assert head.path(ROOM).exists()
    assert any(call.startswith(f"fallocate -l {64 * MIB + 16} ") for call in head.calls)
    free(head, 3)
    assert "is full: Slurm's state now uses its reserved space; next: make room" in look(head)
    assert not head.path(ROOM).exists()
    # And there again when there is room again.
    free(head, 200)
    look(head)
    assert head.path(ROOM).exists()


def test_slurmctld_starts_from_no_state_that_was_cut_off_until_it_is_written_again(head: Shell) -> None:
    free(head, 0.5)
    look(head)
    free(head, 1000)
    # There is room again: it does not bring back what was not written.
    for _ in range(2):
        done = check(head)
        assert done.returncode == 1
        assert "Jobs that ended since then would run again" in done.stdout
        assert "sudo tailrack-slurm-room accept" in done.stdout
        look(head)
    written_again(head)
    look(head)
    assert check(head).returncode == 0


def test_a_controller_that_ends_on_a_full_disk_is_noted_before_anyone_starts_it(head: Shell) -> None:
    free(head, 0.5)
    assert head.command("slurm-room", "stopped").returncode == 0
    assert check(head).returncode == 1


def test_a_disk_that_fills_while_no_controller_runs_spoils_nothing(head: Shell) -> None:
    free(head, 0.5)
    # Another account's, then none.
    for name, text in (("status", f"Uid:\t0\t{os.geteuid() + 1}\t0\t0\n"), ("comm", "sleep\n")):
        head.write(f"/proc/42/{name}", text)
        look(head)
    assert check(head).returncode == 0


def test_root_may_start_it_all_the_same_and_touches_nothing_in_slurms_folder_itself(head: Shell) -> None:
    free(head, 0.5)
    look(head)
    assert_ok(head.command("slurm-room", "accept"))
    assert f"runuser -u slurm -- mv -T {head.path(UNSAVED)} {head.path(SAVED)}" in head.calls
    assert head.calls[-1] == "systemctl start slurmctld"
    assert check(head).returncode == 0
