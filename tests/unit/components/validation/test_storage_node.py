"""One node measures one target: figures, free space, page cache, and files that never stay. A stub replaces fio."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.validation import storage_node
from components.validation.storage_figures import FIGURES, StorageFigures, read_storage
from components.validation.storage_node import ALL, EXISTING, IN_MOUNT, READ_PART, RESTORE, SAVE, WRITE_PART, Target

FIXTURES = Path(__file__).parents[3] / "fixtures" / "fio"
ROOT = Path(__file__).parents[4]
# fio as a program that writes the file, and prints the real output of its kind.
STUB = """#!/bin/bash
for word; do
    case $word in --name=*) kind=${word#*=} ;; --filename=*) file=${word#*=} ;; esac
done
echo "$*" >>"$CALLS"
[ "$kind" != write ] || [ ! -e "$file" ] || echo overwritten >>"$CALLS"
[ "$kind" != write ] || head -c 2M /dev/zero >"$file"
%s
cat "$FIXTURES/fio-3.33-$kind.json"
"""
TARGET = Target("share", "/shared", storage_node.IN_JOB, shared=True, size=2**21, seconds=0.1)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder is a job's, and fio's calls are lines of a file."""
    programs, calls, job = tmp_path / "bin", tmp_path / "calls", tmp_path / "job"
    programs.mkdir()
    job.mkdir()
    calls.touch()
    stub(programs, "")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("FIXTURES", str(FIXTURES))
    monkeypatch.chdir(job)
    monkeypatch.setattr(storage_node, "_KEPT_PART", 0)
    return calls


def stub(programs: Path, more: str) -> None:
    (programs / "fio").write_text(STUB % more, encoding="utf-8")
    (programs / "fio").chmod(0o755)


def measured(target: Target, part: str, node: str = "l1", source: str = "") -> StorageFigures:
    line = storage_node.measure(target, part, node, source or node)
    return read_storage(line)[node, target.name]


@pytest.mark.usefixtures("calls")
def test_a_node_alone_has_all_figures_and_leaves_nothing() -> None:
    figures = measured(TARGET, ALL)
    assert not figures.problem
    assert not figures.missing
    assert figures.runs.keys() == {*FIGURES, "latency_p99_us"}
    assert not Path("data").exists()


@pytest.mark.usefixtures("calls")
def test_a_node_reads_the_file_of_another_and_then_removes_it() -> None:
    assert measured(TARGET, READ_PART, "l2", "l1").problem == "/shared or the file to read in it is gone"
    assert not measured(TARGET, WRITE_PART, "l1").problem
    assert [path.name for path in Path("data").iterdir()] == ["l1"]
    assert measured(TARGET, READ_PART, "l2", "l1").written_by == "l1"
    assert list(Path("data").iterdir()) == []
    measured(TARGET, storage_node.CLEAN)
    assert not Path("data").exists()


def test_all_ranks_save_and_restore_their_parts_of_a_checkpoint(calls: Path) -> None:
    ranks = {"l1": 2, "l2": 1}
    target = replace(TARGET, checkpoint=64 * 2**19, ranks=ranks)
    figures = measured(target, SAVE, "l1")
    assert (figures.checkpoint["save_ranks"], figures.checkpoint["save_bytes"]) == (2, 2**26)
    assert not measured(replace(target, checkpoint=2**26), SAVE, "l2").problem
    problem = measured(target, SAVE, "l2").problem
    assert problem == "fio moved 67108864 bytes instead of 33554432"
    # l2 reads what the ranks of l1 wrote.
    assert measured(target, RESTORE, "l2").checkpoint["restore_seconds"] > 0
    Path("data/l1.part.0").touch()
    assert measured(target, RESTORE, "l2").checkpoint
    assert not list(Path("data").glob("*.part.*"))
    saved, *_, restored = calls.read_text().splitlines()
    assert "--filename_format=l1.part.$jobnum --size=33554432 --numjobs=2" in saved
    assert "--end_fsync=1" in saved
    assert "--filename_format=l1.part.$jobnum" in restored
    problem = measured(replace(target, checkpoint=2**50), WRITE_PART).problem
    assert problem.endswith("or write a smaller validation.storage.checkpoint_size")


def test_a_node_reads_only_written_data(calls: Path) -> None:
    measured(replace(TARGET, size=2**25), ALL)
    sizes = [word for call in calls.read_text().splitlines() for word in call.split() if word.startswith("--size=")]
    # A slow target took 2 MiB of 32 MiB in its time.
    assert sizes == [f"--size={2**25}"] * 3 + [f"--size={2**21}"] * 6


def test_a_disk_without_space_is_not_written_to(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = namedtuple("disk", "f_blocks f_frsize f_bavail")
    monkeypatch.setattr(os, "statvfs", lambda _: disk(2**20, 4096, 2**18))
    problem = measured(replace(TARGET, size=2**20), WRITE_PART).problem
    assert problem.startswith("/shared has 1.0 GiB free, and 1.0 GiB are needed: free some, or write a smaller ")
    monkeypatch.setattr(os, "statvfs", lambda _: disk(0, 4096, 0))
    assert "does not report its free space" in measured(TARGET, WRITE_PART).problem
    assert calls.read_text() == ""


@pytest.mark.parametrize("part", [ALL, WRITE_PART])
def test_a_disk_that_becomes_full_is_named_and_the_file_is_removed(calls: Path, part: str) -> None:
    stub(calls.parent / "bin", "kind=disk-full")
    problem = measured(TARGET, part).problem
    assert problem == "/shared is full: free some space, or write a smaller validation.storage.size"
    assert not Path("data/l1").exists()


def test_a_node_without_fio_names_the_next_command(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (calls.parent / "bin" / "fio").unlink()
    monkeypatch.setenv("PATH", str(calls.parent / "bin"))
    assert measured(TARGET, ALL).problem == "fio is not installed: run 'apt-get install fio' there"


def test_without_direct_io_the_page_cache_is_emptied(calls: Path) -> None:
    # As fio answers for a file of sysfs.
    stub(calls.parent / "bin", 'case " $*" in *--direct=1*) echo \'{"jobs": [{"error": 22}]}\'; exit 1 ;; esac')
    assert measured(TARGET, ALL).direct is False
    buffered = [call for call in calls.read_text().splitlines() if "--direct=0" in call]
    assert len(buffered) == 9
    assert all("--invalidate=1" in call for call in buffered)


@pytest.mark.usefixtures("calls")
def test_scratch_is_measured_in_the_jobs_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "scratch" / "7"
    job.mkdir(parents=True)
    scratch = Target(
        "scratch", str(tmp_path / "scratch"), storage_node.IN_SCRATCH, shared=False, size=2**21, seconds=0.1
    )
    monkeypatch.setenv("TMPDIR", str(job))
    assert not measured(scratch, ALL).missing
    assert list(job.iterdir()) == []
    monkeypatch.setenv("TMPDIR", "/home/ada")
    assert measured(scratch, ALL).problem.startswith(f"TMPDIR is /home/ada and not in {tmp_path}/scratch")


@pytest.mark.usefixtures("calls")
def test_a_missing_mount_is_not_replaced_by_the_disk_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Target("data", str(tmp_path), IN_MOUNT, shared=True, size=2**21, seconds=0.1)
    assert measured(mount, ALL).problem == f"{tmp_path} is not mounted there"
    monkeypatch.setattr(os.path, "ismount", lambda _: True)
    assert not measured(mount, ALL).missing
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tailrack")]


@pytest.fixture
def read_only(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A mount that the user cannot write to."""
    top = tmp_path / "mount"
    top.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda _: True)
    make = Path.mkdir

    def refuse(path: Path, *words: Any, **options: Any) -> None:
        if path.parent == top:
            raise OSError(errno.EROFS, "Read-only file system")
        make(path, *words, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert calls.exists()
    return Target("/data", str(top), IN_MOUNT, shared=True, size=2**25, seconds=0.1)


def test_on_a_read_only_mount_an_existing_file_is_read_and_stays(read_only: Target, calls: Path) -> None:
    assert measured(read_only, WRITE_PART).read_only
    problem = measured(read_only, READ_PART, source=EXISTING).problem
    assert problem.endswith(f"cannot write to {read_only.path}, and no readable file of 1 MiB or more was found in it")
    folder = Path(read_only.path) / os.fsdecode(b"set")
    os.mkdir(folder)  # noqa: PTH102
    for name, size in (("small", 100), ("a: b", 2**23), ("shard-1.tar", 2**22 + 5), ("shard-2.tar", 2**21)):
        (folder / name).write_bytes(b"")
        os.truncate(folder / name, size)
    figures = measured(read_only, READ_PART, source=EXISTING)
    assert figures.runs.keys() == {"read_mb_per_s", "latency_us", "latency_p99_us"}
    assert all(f"--filename=shard-1.tar --size={2**22}" in call for call in calls.read_text().splitlines())
    assert len(list(folder.iterdir())) == 4


@pytest.mark.usefixtures("calls")
def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "l1").write_text("a user's file")
    Path("data").symlink_to(other)
    assert "belongs to another account, or is no folder" in measured(TARGET, WRITE_PART).problem
    measured(TARGET, storage_node.CLEAN)
    assert not Path("data").is_symlink()
    assert (other / "l1").read_text() == "a user's file"


def test_a_cancelled_task_removes_its_files(calls: Path) -> None:
    stub(calls.parent / "bin", "exec sleep 60")
    settings = {name: getattr(TARGET, name) for name in Target.__dataclass_fields__}
    program = f"import sys; from components.validation.storage_node import main; main({[json.dumps(settings), ALL]!r})"
    with subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        deadline = time.monotonic() + 20
        while not Path("data").exists() or not calls.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    assert not Path("data").exists()
