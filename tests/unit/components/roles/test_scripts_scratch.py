"""Role scratch: a job's own folder on its node's disk, made, told of, removed as its owner; and where it lies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.roles.role import template
from components.roles.scratch.settings import Scratch
from stacks.config import ConfigError, parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell, script_of

KNOWN = "/run/tailrack-private/jobs"
LIST = "/etc/tailrack/scratch"
FOLDER = "/raid/tailrack-jobs"


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with a disk; what systemd-run would do is noted."""
    for folder in ("/raid", KNOWN):
        shell.path(folder).mkdir(parents=True)
    shell.stub("stat", f'/usr/bin/stat "$@" | sed "s/^{os.getuid()} /0 /"')
    shell.stub("systemd-run")
    (shell.root / "stubs" / "rmdir").symlink_to("/usr/bin/rmdir")
    return shell


def folder(node: Shell) -> Path:
    return node.path(FOLDER)


def compute(node: Shell, place: str = "raid", refused: bool = False) -> subprocess.CompletedProcess[str]:
    done = node.step(script_of("scratch", "compute"), {"SCRATCH_FOLDER": f"/{place}" if place else None})
    assert (done.returncode != 0) == refused, done.stderr
    return done


def script(node: Shell, kind: str, job: str = "7") -> subprocess.CompletedProcess[str]:
    """One of the two scripts around a job."""
    name = {"prolog": "prolog-45-scratch", "epilog": "epilog-90-scratch"}[kind]
    # The list without the folder that stands for the machine is of no use to bash.
    listed, beside = node.path(LIST), node.path("/listed")
    beside.unlink(missing_ok=True)
    if listed.exists():
        lines = listed.read_text().splitlines()
        beside.write_text("".join(f"{node.root if line else ''}{line}\n" for line in lines))
    path = node.write(f"/scripts/{name}", node.inside(template("health", name)).replace(str(listed), str(beside)))
    environment = {
        "PATH": f"{node.root / 'stubs'}:{node.tools}",
        "SLURM_JOB_ID": job,
        "SLURM_JOB_UID": "6001",
        "SLURM_JOB_GID": "7001",
    }
    return subprocess.run(["bash", path], env=environment, capture_output=True, text=True, check=False)


def begin(node: Shell, job: str) -> None:
    node.write(f"{KNOWN}/{job}", "6001\n")
    done = script(node, "prolog", job)
    assert done.returncode == 0, done.stdout + done.stderr


def names(node: Shell) -> list[str]:
    return sorted(path.name.rpartition(".")[0] or path.name for path in folder(node).iterdir())


def test_a_job_has_a_folder_of_its_own_that_nobody_else_can_read(node: Shell) -> None:
    compute(node)
    begin(node, "7")
    own = folder(node) / "7"
    assert own.stat().st_mode & 0o7777 == 0o700
    assert f"chown -h 6001:7001 {own}" in node.calls


def test_where_the_config_names_no_folder_there_is_none_and_no_file_of_it(node: Shell) -> None:
    compute(node, "")
    assert script(node, "prolog").returncode == 0
    assert script(node, "epilog").returncode == 0
    assert not node.path(LIST).exists()
    assert not folder(node).exists()


@pytest.mark.parametrize("by", ["epilog", "step"])
def test_after_a_job_its_folder_alone_is_removed_as_its_owner(node: Shell, by: str) -> None:
    compute(node)
    begin(node, "7")
    begin(node, "8")
    node.path(f"{KNOWN}/7").unlink()
    assert (script(node, "epilog") if by == "epilog" else compute(node)).returncode == 0
    assert names(node) == ["8", "gone.7"]
    (call,) = [call for call in node.calls if call.startswith("systemd-run")]
    (gone,) = folder(node).glob("gone.*")
    # Whoever makes the folder here stands for the user.
    assert f" -p User={0 if by == 'epilog' else os.getuid()} " in call
    assert f"ExecStopPost=+-/bin/rmdir {gone}" in call
    assert " --no-block " in call
    assert call.endswith(f" - {gone}")


@pytest.mark.parametrize("by", ["epilog", "step"])
def test_what_is_removed_is_all_that_is_in_it_folders_that_cannot_be_written_too(node: Shell, by: str) -> None:
    compute(node)
    begin(node, "7")
    inner = folder(node) / "7" / "data" / "locked"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    outside = node.write("/precious/file", "x")
    (folder(node) / "7" / "link").symlink_to(outside.parent)
    inner.chmod(0o500)
    node.path(f"{KNOWN}/7").unlink()
    # What systemd would start, started.
    node.stub("systemd-run", 'while [ "$1" != /bin/sh ]; do shift; done; exec "$@"')
    assert (script(node, "epilog") if by == "epilog" else compute(node)).returncode == 0
    (gone,) = folder(node).glob("gone.*")
    assert list(gone.iterdir()) == []
    assert outside.exists()


def test_a_job_that_begins_again_finds_its_folder_empty_and_what_a_restart_left_goes(node: Shell) -> None:
    compute(node)
    begin(node, "7")
    (folder(node) / "7" / "file").write_text("old")
    (folder(node) / "5").mkdir()
    begin(node, "7")
    assert names(node) == ["7", "gone.5", "gone.7"]
    assert list((folder(node) / "7").iterdir()) == []


def test_a_disk_that_takes_no_folder_drains_the_node_with_what_to_do(node: Shell) -> None:
    compute(node)
    folder(node).rmdir()
    done = script(node, "prolog")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"cannot create a folder for the job in {folder(node)}"
    assert "next: check 'df -h" in done.stdout


def test_a_second_run_changes_nothing_and_another_folder_leaves_the_old_one_to_the_jobs_in_it(node: Shell) -> None:
    compute(node)
    begin(node, "7")
    before = node.path(LIST).read_text()
    compute(node)
    assert node.path(LIST).read_text() == before == f"{FOLDER}\n"
    node.path("/nvme").mkdir()
    compute(node, "nvme")
    assert node.path(LIST).read_text() == f"/nvme/tailrack-jobs\n{FOLDER}\n"
    assert names(node) == ["7"]
    node.path(f"{KNOWN}/7").unlink()
    assert script(node, "epilog").returncode == 0
    assert names(node) == ["gone.7"]
    compute(node, "")
    assert node.path(LIST).read_text().splitlines()[0] == ""
    assert FOLDER in node.path(LIST).read_text()
    assert script(node, "prolog", "9").returncode == 0
    assert not (folder(node) / "9").exists()
    assert not node.path("/nvme/tailrack-jobs").exists()


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
def test_a_folder_that_others_could_exchange_is_refused_before_it_is_used(node: Shell, change: str, said: str) -> None:
    subprocess.run(["bash", "-ec", change], env={"ROOT": str(node.root), "PATH": os.environ["PATH"]}, check=True)
    done = compute(node, refused=True)
    assert said in done.stderr
    assert not node.path(LIST).exists()


def test_a_disk_that_is_not_mounted_is_named(node: Shell) -> None:
    done = compute(node, "mnt/nvme", refused=True)
    assert "/mnt, the parent of the scratch folder nvme, does not exist on a1" in done.stderr


def test_a_sticky_folder_of_everybodys_will_do(node: Shell) -> None:
    node.path("/raid").chmod(0o1777)
    compute(node)
    assert folder(node).stat().st_mode & 0o7777 == 0o755


def test_leaving_removes_what_was_made_and_nothing_that_was_there(node: Shell) -> None:
    compute(node, "raid/jobs")
    (node.path("/raid/jobs/tailrack-jobs") / "5").mkdir()
    node.stub("systemd-run", f"rmdir {node.path('/raid/jobs/tailrack-jobs/5')}")
    for _ in range(2):
        done = node.step(script_of("scratch", "leave"), {})
        assert done.returncode == 0, done.stderr
    assert list(node.path("/raid").iterdir()) == []
    assert not node.path(LIST).exists()
    assert not node.path("/var/lib/tailrack/scratch-made").exists()


def said_of(scratch: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        parse({**LAB, "scratch": scratch, **more}, base_dir=Path())
    return str(refused.value)


def test_a_folder_of_the_config_is_refused_where_it_would_do_harm() -> None:
    assert parse({**LAB, "scratch": {"folder": "/raid"}}, base_dir=Path()).scratch == Scratch(folder="/raid")
    assert "may be a folder of the system" in said_of({"folder": "/etc"})
    assert "is not an absolute path" in said_of({"folder": "/raid/a b"})
    assert "is on the share" in said_of({"folder": "/srv/data"}, storage={"path": "/srv/data", "mount": "/shared"})
    said = said_of({"folder": "/raid"}, health={"enabled": False})
    assert "tailrack:health.enabled is false" in said
    assert "remove one of the two" in said
