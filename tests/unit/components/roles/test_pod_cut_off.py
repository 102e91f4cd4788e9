"""A restart of tailscaled ends the steps of a pod whose srun is elsewhere, and no others."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from components.node import safe_path
from components.node.run import Ended
from components.roles.pods.pod_staging import steps
from components.slurm_commands import slurm

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {local}:9C40 0100007F:1A81 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0\n"


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the pod, without connections."""
    monkeypatch.setattr(safe_path, "root", str(tmp_path))
    (tmp_path / "proc" / "net").mkdir(parents=True)
    for name in ("tcp", "tcp6"):
        (tmp_path / "proc" / "net" / name).write_text(HEAD)
    return tmp_path


def process(pod: Path, pid: int, title: str, uid: int = 0, inode: int = 0) -> None:
    """Show a process, with a socket."""
    folder = pod / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(title.encode() + b"\0")
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "fd" / "0").symlink_to("/dev/null")
    (folder / "fd" / "9").symlink_to(f"socket:[{inode}]")


def connect(pod: Path, inode: int, local: str, state: str = "01", name: str = "tcp") -> None:
    """Show a connection."""
    with (pod / "proc" / "net" / name).open("a") as table:
        table.write(ROW.format(local=local, state=state, inode=inode))


def test_a_step_of_an_srun_elsewhere_is_cut_off(pod: Path) -> None:
    process(pod, 10, "slurmstepd: [7.0]", inode=100)
    process(pod, 11, "slurmstepd: [8.interactive]", inode=101)
    process(pod, 12, "slurmstepd: [9.1+2]", inode=102)
    connect(pod, 100, "0300007F")
    assert steps.steps_cut_off() == ["7.0", "8.interactive", "9.1"]


def test_batch_scripts_and_other_programs_are_not_cut_off(pod: Path) -> None:
    process(pod, 10, "slurmstepd: [7.batch]")
    process(pod, 11, "slurmstepd: [7.extern]")
    process(pod, 12, "sleep 10")
    process(pod, 13, "slurmstepd: [7.0]", uid=6001)
    assert steps.steps_cut_off() == []


def test_a_step_runs_on_while_its_srun_is_on_the_pod(pod: Path) -> None:
    process(pod, 10, "slurmstepd: [7.0]", inode=100)
    connect(pod, 100, "0200007F", state="08")
    assert steps.steps_cut_off() == ["7.0"], "its srun is gone"
    for name, local in (("tcp", "0200007F"), ("tcp6", "0000000000000000FFFF00000200007F")):
        (pod / "proc/net/tcp").write_text(HEAD)
        connect(pod, 100, local, name=name)
        assert steps.steps_cut_off() == [], name


def test_users_get_a_warning_before_their_step_ends(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[tuple[str, str]] = []

    def attempt(*words: str, environment: Mapping[str, str] | None = None, **_: object) -> Ended:
        run.append((" ".join(words[:3]), (environment or {}).get("LD_PRELOAD", "")))
        return Ended(0, "8 7_0\n7 7_1\n" if words[0] == "squeue" else "")

    monkeypatch.setattr(steps, "attempt", attempt)
    monkeypatch.setattr(slurm, "attempt", attempt)
    process(pod, 10, "slurmstepd: [7.0]")
    assert steps.end_cut_off_steps(["/l.so"]) == 0
    assert run[0] == ("tailscale wait --timeout", "")
    assert run[2:] == [("scontrol notify 7_1", "/l.so"), ("scancel 7_1.0", "/l.so")], "the last task of its array"
