"""`tailrack sync`: what it refuses, what it copies during a job and after it, and what its user sees."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import replace
from pathlib import Path

import pytest

from components.roles.scratch import after_job, copies, sync_report, transfer
from components.roles.tailrack_command import sync
from components.roles.tailrack_command.main import main

RSYNC = """#!/bin/bash
[ ! -e "$FAIL" ] || { cat "$FAIL" >&2; exit 11; }
echo "$*" >>"$CALLS"
from=${*: -2:1} to=${*: -1}
cp -a "$from." "$to"; rm -rf "$to/.tailrack-sync"
"""
RCLONE = """#!/bin/bash
case "$*" in *listremotes*) printf 'store:\\nother:\\n' ;; *) env | grep RCLONE >>"$CALLS"; echo "$*" >>"$CALLS" ;; esac
"""


class Job:
    """A job on a node with scratch space."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.scratch = folder / "disk" / "28"
        self.home = folder / "home"
        self.share = folder / "share"
        for path in (self.scratch, self.home, self.share):
            path.mkdir(parents=True)
        (folder / "list").write_text(f"{folder}/disk\n/former\n")

    def checkpoint(self, text: str = "one") -> str:
        path = self.scratch / "checkpoints"
        path.mkdir(exist_ok=True)
        (path / "step-1.pt").write_text(text)
        return str(path)

    def end(self, hours: float = 0) -> Path:
        """Rename the folder as the epilog does."""
        path = self.root / "disk" / f"sync.28.{int(time.time() - hours * 3600)}.5"
        self.scratch.rename(path)
        return path

    @property
    def calls(self) -> str:
        path = self.root / "calls"
        return path.read_text() if path.exists() else ""

    def fail(self, text: str) -> None:
        (self.root / "fail").write_text(text)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(tmp_path)
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name, text in (("rsync", RSYNC), ("rclone", RCLONE)):
        (stubs / name).write_text(text)
        (stubs / name).chmod(0o755)
    for name, value in {
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "FAIL": str(tmp_path / "fail"),
        "SLURM_JOB_ID": "28",
        "SLURMD_NODENAME": "a1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RCLONE_CONFIG", raising=False)
    monkeypatch.setattr(sync, "SCRATCH", str(tmp_path / "list"))
    account = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(
        sync_report, "_account", lambda: pwd.struct_passwd((*account[:5], str(made.home), *account[6:]))
    )
    monkeypatch.setattr(after_job, "_hours", lambda: 24)
    monkeypatch.setattr(after_job, "sleep", lambda _: None)
    return made


def why(job: Job) -> str:
    (line,) = sync_report.sentences(28)
    return line


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["sync", *words]) == 1
    return capsys.readouterr().err


def test_with_wait_the_copy_is_there_when_the_command_returns(job: Job) -> None:
    target = job.share / "run1" / "checkpoints"
    assert main(["sync", "--wait", job.checkpoint(), str(target)]) == 0
    assert (target / "step-1.pt").read_text() == "one"
    assert why(job) == f"a1: copy of checkpoints to {target}: done"
    assert copies.listed(job.scratch) == []


def test_a_copy_at_the_end_is_made_after_the_job_and_the_folder_is_emptied(job: Job) -> None:
    target = job.share / "run1"
    # The job makes its folder of checkpoints later.
    assert main(["sync", "--at-end", f"{job.scratch}/checkpoints", str(target)]) == 0
    job.checkpoint()
    assert "made when the job has ended" in why(job)
    folder = job.end()
    assert after_job.main([str(folder)]) == 0
    assert (target / "step-1.pt").read_text() == "one"
    assert list(folder.iterdir()) == []
    assert why(job).endswith(": done")


def test_a_copy_that_the_jobs_end_cut_off_is_finished_after_it(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "_in_background", lambda *_: None)
    assert main(["sync", job.checkpoint(), str(job.share / "run1")]) == 0
    assert after_job.main([str(job.end())]) == 0
    assert (job.share / "run1" / "step-1.pt").exists()


def test_asked_for_again_while_it_runs_it_is_copied_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    target, real, texts = job.share / "run1", transfer.transfer, ["two"]

    def changed(folder: Path, copy: copies.Copy) -> str:
        if texts:
            job.checkpoint(texts.pop())
            copies.write(folder, replace(copy, asked=copy.asked + 1))
        return real(folder, copy)

    monkeypatch.setattr(sync, "transfer", changed)
    assert main(["sync", "--wait", job.checkpoint(), str(target)]) == 0
    assert job.calls.count("checkpoints/") == 2
    assert copies.listed(job.scratch) == []


def test_a_copy_at_the_end_stays_noted_when_it_was_also_made_before(job: Job) -> None:
    source, target = job.checkpoint(), str(job.share / "run1")
    assert main(["sync", "--at-end", source, target]) == 0
    assert main(["sync", "--wait", source, target]) == 0
    (copy,) = copies.listed(job.scratch)
    assert (copy.at_end, copy.asked) == (True, 2)


def test_a_failure_is_shown_beside_the_target_and_by_why_and_gone_when_it_works(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = job.share / "run1"
    main(["sync", "--at-end", job.checkpoint(), str(target)])
    job.fail("rsync: write failed: Disk quota exceeded (122)\nrsync error: error in file IO (code 11)\n")
    beside, seen = job.share / "run1.sync-failed.txt", []

    def sleep(_: float) -> None:
        seen.append((beside.read_text(), why(job)))
        (job.root / "fail").unlink()

    monkeypatch.setattr(after_job, "sleep", sleep)
    assert after_job.main([str(job.end())]) == 0
    ((text, said),) = seen
    assert text.startswith(f"job 28 on a1: copy of checkpoints to {target}: failed: rsync: write failed: Disk quota")
    assert "; the node tries again until 2" in said
    assert not beside.exists()
    assert why(job).endswith(": done")


def test_after_its_time_a_copy_has_failed_and_the_folder_is_emptied(job: Job) -> None:
    main(["sync", "--at-end", job.checkpoint(), str(job.share / "run1")])
    job.fail("no room\n")
    folder = job.end(hours=25)
    assert after_job.main([str(folder)]) == 0
    assert list(folder.iterdir()) == []
    assert why(job).endswith(": failed: no room")
    assert "failed: no room" in (job.share / "run1.sync-failed.txt").read_text()


def test_a_folder_that_the_job_never_made_is_no_reason_to_try_for_hours(job: Job) -> None:
    main(["sync", "--at-end", f"{job.scratch}/none", str(job.share / "run1")])
    assert after_job.main([str(job.end())]) == 0
    assert why(job).endswith("failed: the job has made no folder none")


def test_a_bucket_is_written_with_the_users_config_file_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RCLONE_CONFIG", str(job.home / "rclone.conf"))
    monkeypatch.setenv("RCLONE_S3_SECRET_ACCESS_KEY", "nobody-may-see")
    assert main(["sync", "--wait", job.checkpoint(), "store:bucket/run1"]) == 0
    assert f"RCLONE_CONFIG={job.home}/rclone.conf\n" in job.calls
    assert "nobody-may-see" not in job.calls
    assert f"-- {job.scratch}/checkpoints store:bucket/run1" in job.calls


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ("/etc", "SHARE/run1", "/etc is not in the job's folder"),
        ("JOB/../29", "SHARE/run1", "is not in the job's folder"),
        ("JOB/missing", "SHARE/run1", "is not a folder; write the folder that contains your files"),
        ("JOB/checkpoints/step-1.pt", "SHARE/run1", "is not a folder"),
        ("JOB/checkpoints", "JOB/copy", "is in the job's folder, which is removed"),
        ("JOB/checkpoints", "run1", "is neither an absolute path"),
        ("JOB/checkpoints", ":s3,secret_access_key=x:bucket", "is neither an absolute path"),
        ("JOB/checkpoints", "-e sh:x", "is neither an absolute path"),
        ("JOB/checkpoints", "nowhere:bucket", "your rclone config has only store: other:, not nowhere:"),
        ("JOB/checkpoints", "SHARE/a\nb", "contains special characters"),
        ("JOB/checkpoints", "/proc/run1", "cannot make the folder /proc/run1"),
    ],
)
def test_what_cannot_be_copied_is_refused_at_once_with_what_to_write(
    job: Job, capsys: pytest.CaptureFixture[str], source: str, target: str, problem: str
) -> None:
    job.checkpoint()
    for word, place in (("JOB", job.scratch), ("SHARE", job.share)):
        source, target = (text.replace(word, str(place)) for text in (source, target))
    assert problem in refused(capsys, "--", source, target)
    assert copies.listed(job.scratch) == []


def test_outside_a_job_and_on_a_node_without_scratch_it_says_what_is_missing(
    job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (job.checkpoint(), str(job.share))
    monkeypatch.setenv("SLURM_JOB_ID", "29")
    assert "ask your administrator for tailrack:scratch" in refused(capsys, *words)
    monkeypatch.setenv("SLURM_JOB_ID", "../28")
    assert "run this command in a job" in refused(capsys, *words)
    monkeypatch.delenv("SLURM_JOB_ID")
    assert "run this command in a job" in refused(capsys, *words)


@pytest.mark.parametrize("text", ["", "[]", '{"source": 1}', '{"node": "a1"}', "x" * 100_000])
def test_a_damaged_list_or_report_ends_nothing(job: Job, text: str) -> None:
    main(["sync", "--at-end", job.checkpoint(), str(job.share / "run1")])
    (path,) = (job.home / ".local/state/tailrack/sync/28").iterdir()
    path.write_text(text)
    assert sync_report.sentences(28) == []
    (job.scratch / ".tailrack-sync" / "odd.json").write_text(text)
    assert len(copies.listed(job.scratch)) == 1


def test_reports_of_jobs_that_ended_months_ago_are_removed(job: Job) -> None:
    old = job.home / ".local/state/tailrack/sync/3"
    old.mkdir(parents=True)
    (old / "a1-x.json").write_text("{}")
    os.utime(old, (0, 0))
    main(["sync", "--wait", job.checkpoint(), str(job.share / "run1")])
    assert not old.exists()


def test_a_copy_that_its_node_has_stopped_is_shown_as_failed(job: Job) -> None:
    copy = copies.Copy("checkpoints", "/shared/x", "28", "a1")
    sync_report.report(copy, sync_report.RUNS, until=time.time() - 10)
    assert "failed, the node has not finished it by" in why(job)
    assert sync_report.sentence("a", "b", "odd", "", 0) == "copy of a to b: unknown"
