"""What the lab does with Docker objects and an engine, on stand-ins for them."""

import fcntl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.file_lock import locked
from lab import docker_daemon
from lab.keys import ensure_client_key


def test_a_half_written_key_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "id_ed25519.new").write_text("half")
    assert ensure_client_key(tmp_path).private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


def test_a_lock_keeps_others_out_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lab.lock"
    with locked(path), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def pid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine's process id would be."""
    monkeypatch.setattr(docker_daemon, "PID_FILE", tmp_path / "dockerd.pid")
    return tmp_path / "dockerd.pid"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that calls itself dockerd, from the moment on that the kernel says so."""
    process = subprocess.Popen(["dockerd-stand-in", "60"], executable="/bin/sleep")
    deadline = time.monotonic() + 60
    while b"dockerd" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
    yield process
    process.kill()
    process.wait()


def test_the_engine_that_was_started_here_is_stopped(pid_file: Path, sleeper: subprocess.Popen[bytes]) -> None:
    pid_file.write_text(f"{sleeper.pid}\n")
    assert docker_daemon.stop_daemon() is True
    assert sleeper.wait(timeout=60) == -15
    assert not pid_file.exists()


def test_an_engine_of_others_and_a_process_that_took_over_the_number_are_left_alone(pid_file: Path) -> None:
    assert docker_daemon.stop_daemon() is False
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        pid_file.write_text(f"{other.pid}\n")
        assert docker_daemon.stop_daemon() is False
        assert other.poll() is None
        other.kill()
