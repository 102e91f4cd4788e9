"""What the lab does with Docker objects and an engine, on stand-ins for them."""

from __future__ import annotations

import fcntl
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from docker.errors import APIError

from cli.locks import locked
from lab import docker_daemon, node
from lab.cleanup import forget
from lab.errors import LabError
from lab.keys import ensure_client_key
from lab.spec import NodeSpec


def test_the_client_key_is_made_once_and_is_the_owners_alone(tmp_path: Path) -> None:
    first = ensure_client_key(tmp_path / "lab")
    assert ensure_client_key(tmp_path / "lab") == first
    assert stat.S_IMODE((tmp_path / "lab").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "lab" / "id_ed25519").stat().st_mode) == 0o600
    load_ssh_private_key(first.private.encode(), password=None)
    assert first.public.startswith("ssh-ed25519 AAAA")


def test_a_half_written_key_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "id_ed25519.new").write_text("half")
    assert ensure_client_key(tmp_path).private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


def test_a_lock_keeps_others_out_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lab.lock"
    with locked(path), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_that_is_held_is_waited_for_or_is_an_error_of_the_callers_choice(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    with locked(path), pytest.raises(LabError, match="somebody is at it"), locked(path, LabError("somebody is at it")):
        pass
    with locked(path, LabError("free again")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_removal_that_fails_is_an_error() -> None:
    def remove(force: bool) -> None:
        raise APIError("500", explanation="device busy")

    with pytest.raises(APIError, match="500"):
        forget(remove, force=True)


def test_the_unified_cgroup_hierarchy_is_found_on_new_and_on_hybrid_machines(tmp_path: Path) -> None:
    new, hybrid, old = tmp_path / "new", tmp_path / "hybrid", tmp_path / "old"
    for folder in (new, hybrid / "unified"):
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.controllers").touch()
    old.mkdir()
    assert node.cgroup_hierarchy(new) == new
    assert node.cgroup_hierarchy(hybrid) == hybrid / "unified"
    with pytest.raises(LabError, match="no unified cgroup hierarchy"):
        node.cgroup_hierarchy(old)


@pytest.mark.parametrize(
    ("site", "image", "fits"),
    [
        ("cloud-a", "tailrack-lab-node:0123", True),
        ("cloud-a", "tailrack-lab-node-bare:4567", False),
        ("cloud-b", "tailrack-lab-node:4567", False),
    ],
)
def test_a_container_of_the_same_site_and_kind_stays_with_any_build(site: str, image: str, fits: bool) -> None:
    container = cast("Any", SimpleNamespace(labels={"tailrack.site": site}, attrs={"Config": {"Image": image}}))
    spec = NodeSpec(lab="x", state_dir=Path(), node="a1", site="cloud-a")
    assert node.fits(container, spec, "tailrack-lab-node:4567") is fits


@pytest.fixture
def pid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine's process id would be."""
    monkeypatch.setattr(docker_daemon, "PID_FILE", tmp_path / "dockerd.pid")
    return tmp_path / "dockerd.pid"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that calls itself dockerd, from the moment on that the kernel says so."""
    process = subprocess.Popen(["dockerd-stand-in", "60"], executable="/bin/sleep")
    deadline = time.monotonic() + 5
    while b"dockerd" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
    yield process
    process.kill()
    process.wait()


def test_the_engine_that_was_started_here_is_stopped(pid_file: Path, sleeper: subprocess.Popen[bytes]) -> None:
    pid_file.write_text(f"{sleeper.pid}\n")
    assert docker_daemon.stop_daemon() is True
    assert sleeper.wait(timeout=5) == -15
    assert not pid_file.exists()


def test_an_engine_of_others_is_left_alone(pid_file: Path) -> None:
    assert docker_daemon.stop_daemon() is False


def test_a_process_that_took_over_the_number_is_left_alone(pid_file: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        pid_file.write_text(f"{other.pid}\n")
        assert docker_daemon.stop_daemon() is False
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(("before", "after"), [("128\n", "1024\n"), ("8192\n", "8192\n")])
def test_the_lab_raises_the_watch_limit_and_never_lowers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    monkeypatch.setattr(docker_daemon, "WATCHES", tmp_path / "max_user_instances")
    monkeypatch.setattr("lab.commands.os.geteuid", lambda: 0)
    docker_daemon.WATCHES.write_text(before)
    docker_daemon._raise_watches()
    assert docker_daemon.WATCHES.read_text() == after
