"""Role scratch: a job's own folder on its node's disk, made, told of, removed as its owner; and where it lies."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from components.node import files, safe_path
from components.node import run as running
from components.node.declared import Record
from components.node.step.step import Step
from components.roles.role import Value
from components.roles.storage.scratch import host, sweep
from components.roles.storage.scratch.settings import Scratch
from stacks.config import parse
from tests.unit.configs import LAB, refusal
from tests.unit.shell import Shell, assert_ok, script_of

KNOWN = "/run/tailrack-private/jobs"
LIST = "/etc/tailrack/scratch"
FOLDER = "/raid/tailrack-jobs"


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with a disk; what systemd-run would do is noted."""
    for folder in ("/raid", KNOWN):
        shell.path(folder).mkdir(parents=True)
    shell.stub("systemd-run")
    (shell.root / "stubs" / "rmdir").symlink_to("/usr/bin/rmdir")
    return shell


def folder(node: Shell) -> Path:
    return node.path(FOLDER)


def compute(
    node: Shell, place: str = "raid", refused: bool = False, days: int = 30
) -> subprocess.CompletedProcess[str]:
    values: dict[str, Value] = {
        "scratch_folder": f"/{place}" if place else None,
        "scratch_cache_days": days,
        "scratch_cache_disk_percent": 85,
    }
    done = node.step(script_of("scratch", "compute"), values)
    assert (done.returncode != 0) == refused, done.stderr
    return done


def script(node: Shell, kind: str, job: str = "7") -> subprocess.CompletedProcess[str]:
    """One of the two scripts around a job."""
    environment = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": "6001", "SLURM_JOB_GID": "7001"}
    with mock.patch.object(os, "chown", lambda path, *ids, **_: node.note(f"chown {ids} {path}")):
        return node.command("scratch-clean", {"prolog": "begin", "epilog": "end"}[kind], environment=environment)


def begin(node: Shell, job: str) -> None:
    node.write(f"{KNOWN}/{job}", "6001\n")
    assert_ok(script(node, "prolog", job))


def names(node: Shell) -> list[str]:
    return sorted(".".join(path.name.split(".")[:2]) for path in folder(node).iterdir())


@pytest.fixture
def disk(node: Shell) -> Shell:
    """A node with the role, on which jobs get folders."""
    compute(node)
    return node


@pytest.fixture
def job_node(disk: Shell) -> Shell:
    """Such a node with job 7."""
    begin(disk, "7")
    return disk


def test_a_job_has_an_empty_folder_that_only_its_user_can_read_and_old_folders_go(job_node: Shell) -> None:
    own = folder(job_node) / "7"
    assert own.stat().st_mode & 0o7777 == 0o700
    assert f"chown (6001, 7001) {own}" in job_node.calls
    (own / "file").write_text("old")
    (folder(job_node) / "5").mkdir()
    begin(job_node, "7")
    assert names(job_node) == ["7", "gone.5", "gone.7"]
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("by", ["epilog", "step"])
def test_after_a_job_its_folder_alone_is_removed_as_its_owner(job_node: Shell, by: str) -> None:
    begin(job_node, "8")
    inner = folder(job_node) / "7" / "data" / "locked"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    outside = job_node.write("/precious/file", "x")
    (folder(job_node) / "7" / "link").symlink_to(outside.parent)
    inner.chmod(0o500)
    job_node.path(f"{KNOWN}/7").unlink()
    # What systemd would start, started.
    job_node.stub("systemd-run", 'while [ "$1" != /bin/sh ]; do shift; done; exec "$@"')
    assert (script(job_node, "epilog") if by == "epilog" else compute(job_node)).returncode == 0
    assert names(job_node) == ["8", "gone.7"]
    (call,) = [call for call in job_node.calls if call.startswith("systemd-run")]
    (gone,) = folder(job_node).glob("gone.*")
    # Whoever makes the folder here stands for the user.
    assert f" -p User={os.getuid()} " in call
    assert f"ExecStopPost=+-/bin/rmdir {gone}" in call
    assert " --no-block " in call
    assert call.endswith(f" - {gone}")
    # It removes read-only folders and follows no links.
    assert list(gone.iterdir()) == []
    assert outside.exists()


def test_an_unwritable_disk_drains_the_node_with_a_remedy(disk: Shell) -> None:
    folder(disk).rmdir()
    done = script(disk, "prolog")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"cannot create a folder for the job in {FOLDER}"
    assert "next: check 'df -h" in done.stdout


def test_a_second_run_changes_nothing_and_another_folder_leaves_the_old_one_to_the_jobs_in_it(job_node: Shell) -> None:
    before = job_node.path(LIST).read_text()
    compute(job_node)
    assert job_node.path(LIST).read_text() == before == f"{FOLDER}\n"
    job_node.path("/nvme").mkdir()
    compute(job_node, "nvme")
    assert job_node.path(LIST).read_text() == f"/nvme/tailrack-jobs\n{FOLDER}\n"
    assert names(job_node) == ["7"]
    job_node.path(f"{KNOWN}/7").unlink()
    assert script(job_node, "epilog").returncode == 0
    assert names(job_node) == ["gone.7"]
    compute(job_node, "")
    assert job_node.path(LIST).read_text().splitlines()[0] == ""
    assert FOLDER in job_node.path(LIST).read_text()
    assert script(job_node, "prolog", "9").returncode == 0
    assert not (folder(job_node) / "9").exists()
    assert not job_node.path("/nvme/tailrack-jobs").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("chmod 0777 $ROOT/raid", "on a1 (mode 777), and could remove"),
        ("chmod 0777 $ROOT/raid; mkdir -m 0770 $ROOT/raid/tailrack-jobs", "(mode 770)"),
        ("mkdir $ROOT/other; rm -r $ROOT/raid; ln -s other $ROOT/raid", "raid is a link on a1"),
        ("rm -r $ROOT/raid; echo >$ROOT/raid", "raid is not a folder on a1"),
        ("ln -s . $ROOT/raid/tailrack-jobs", "tailrack-jobs is a link on a1"),
    ],
)
def test_a_folder_that_others_could_exchange_or_on_no_disk_is_refused(node: Shell, change: str, said: str) -> None:
    subprocess.run(["bash", "-ec", change], env={"ROOT": str(node.root), "PATH": os.environ["PATH"]}, check=True)
    assert said in compute(node, refused=True).stderr
    missing = compute(node, "mnt/nvme", refused=True).stderr
    assert "/mnt, the parent of the scratch folder nvme, does not exist on a1" in missing
    assert not node.path(LIST).exists()


def test_leaving_removes_scratch_folders_and_keeps_earlier_files(node: Shell) -> None:
    compute(node, "raid/jobs")
    (node.path("/raid/jobs/tailrack-jobs") / "5").mkdir()
    node.stub("systemd-run", 'for last; do :; done; rmdir "$last"')
    for _ in range(2):
        assert_ok(node.step(script_of("scratch", "leave"), {}))
    assert list(node.path("/raid").iterdir()) == []
    assert not node.path(LIST).exists()
    assert not node.path("/var/lib/tailrack/scratch-made").exists()


CACHES = "/raid/tailrack-caches"


def cached(node: Shell, name: str, days: float, user: str = "6001") -> Path:
    """A file that was last used some days ago."""
    path = node.write(f"{CACHES}/{user}/{name}", "x")
    moment = time.time() - days * 86400
    os.utime(path, (moment, moment))
    return path


@pytest.fixture
def cleaned(node: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Clean the caches of a node as the timer does, on a disk that is so full."""
    compute(node)
    node.stub("systemd-run", 'while [ "$1" != /bin/sh ]; do shift; done; exec "$@"')
    monkeypatch.setattr(safe_path, "root", str(node.root))
    monkeypatch.setattr(running, "PATH", f"{node.root / 'stubs'}:{os.environ['PATH']}")
    # The time of a file's creation cannot be set.
    monkeypatch.setattr(sweep, "_CLEAN", sweep._CLEAN.replace(' -cmin +"$2"', ""))

    def clean(percent: int) -> None:
        monkeypatch.setattr(sweep, "_used_percent", lambda _: percent)
        sweep.clean_caches()

    return clean


def test_a_users_cache_folder_is_made_before_the_job_and_stays_after_it(job_node: Shell) -> None:
    own = job_node.path(f"{CACHES}/6001")
    assert own.stat().st_mode & 0o7777 == 0o700
    assert f"chown (6001, 7001) {own}" in job_node.calls
    (own / "model").write_text("x")
    job_node.path(f"{KNOWN}/7").unlink()
    assert script(job_node, "epilog").returncode == 0
    begin(job_node, "8")
    assert (own / "model").read_text() == "x"


def test_with_no_days_there_are_no_caches_and_those_of_before_go(job_node: Shell) -> None:
    job_node.path(f"{KNOWN}/7").unlink()
    job_node.stub("systemd-run", 'case "$*" in *tailrack-caches*) for last; do :; done; rmdir "$last" ;; esac')
    compute(job_node, days=0)
    assert not job_node.path(CACHES).exists()
    begin(job_node, "8")
    assert not job_node.path(CACHES).exists()


def test_only_files_unused_for_so_many_days_go(node: Shell, cleaned: Callable[[int], None]) -> None:
    old, recent = cached(node, "hub/old", 31), cached(node, "hub/recent", 29)
    link = node.path(f"{CACHES}/6001/link")
    link.symlink_to("hub/old")
    outside = node.write("/precious", "x")
    (node.path(f"{CACHES}/6001") / "outside").symlink_to(outside)
    os.utime(outside, (0, 0))
    cleaned(10)
    assert (old.exists(), recent.exists(), link.is_symlink(), outside.exists()) == (False, True, False, True)


def test_full_disks_lose_old_files(
    node: Shell, cleaned: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = cached(node, "older", 20), cached(node, "newer", 10, "6002")
    monkeypatch.setattr(sweep, "_used_percent", lambda _: 90 if older.exists() else 80)
    sweep.clean_caches()
    assert (older.exists(), newer.exists()) == (False, True)
    just_now = cached(node, "now", 0)
    cleaned(99)
    assert (newer.exists(), just_now.exists()) == (False, True)


def test_the_cleanup_keeps_the_cache_of_a_user_with_a_job(node: Shell, cleaned: Callable[[int], None]) -> None:
    mine, other = cached(node, "old", 50), cached(node, "old", 50, "6002")
    node.write(f"{KNOWN}/7", "6001\n")
    cleaned(99)
    assert (mine.exists(), other.exists()) == (True, False)


def test_taken_out_of_the_config_programs_go(disk: Shell) -> None:
    disk.write("/usr/local/lib/tailrack/scratch-clean", "x")
    compute(disk, "")
    assert not [*disk.path("/usr/local/lib/tailrack").iterdir()]
    assert not [*disk.path("/etc/tailrack").glob("scratch*")]


def test_the_program_stays_while_it_has_to_empty_a_jobs_folder(node: Shell) -> None:
    for folder, left in (("/raid", True), ("", True), ("", False)):
        if not left:
            subprocess.run(["rm", "-r", node.path(FOLDER)], check=True)
        with node.here():
            record = Record("machine", {"compute/scratch": [sweep.CLEAN] if folder else []})
            record.begin("compute/scratch")
            if folder:
                files.write(sweep.CLEAN, "x")
            host.compute(Step("a1", "a1-node", record=record), folder, 0, 0)
            record.begin("")
        if folder:
            begin(node, "7")
        assert node.path(sweep.CLEAN).exists() == left, (folder, left)


def test_the_config_rejects_a_harmful_scratch_folder_and_limits_out_of_range() -> None:
    assert parse({**LAB, "scratch": {"folder": "/raid"}}, base_dir=Path()).scratch == Scratch(folder="/raid")
    share = {"storage": {"path": "/srv/data", "mount": "/shared"}}
    for scratch, more, problems in (
        ({"folder": "/etc"}, {}, ["may be a folder of the system"]),
        ({"folder": "/raid/a b"}, {}, ["is not an absolute path"]),
        ({"folder": "/srv/data"}, share, ["is on the share"]),
        ({}, {"health": {"enabled": False}}, ["tailrack:health.enabled is false", "remove one of the two"]),
        ({"cache_days": -1}, {}, ["tailrack:scratch.cache_days", "from 0 to 3650"]),
        ({"cache_days": "long"}, {}, ["tailrack:scratch.cache_days", "from 0 to 3650"]),
        ({"cache_disk_percent": 100}, {}, ["tailrack:scratch.cache_disk_percent", "from 10 to 99"]),
    ):
        said = refusal({"scratch": {"folder": "/raid", **scratch}, **more})
        assert [problem for problem in problems if problem not in said] == [], scratch
