"""What root runs as somebody else gets three streams and nothing else, and holds nobody up. For real."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from components.node import accounts
from components.node.accounts import as_user
from components.node.waiting import wait_until

USER = "daemon"  # who is on every Debian, and owns nothing
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's program is started by root")


@pytest.fixture(autouse=True)
def lock(tmp_path: Path) -> Iterator[Path]:
    """A lock that root holds, as every step does."""
    path = tmp_path / "lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield path


def bash(commands: str, limit: float = 10, most: int = 9999, stdin: str = "") -> tuple[int, str, str]:
    ended = as_user(USER, "bash", "-c", commands, limit=limit, most=most, stdin=stdin)
    return ended.status, ended.output, ended.errors


def test_a_users_program_has_three_streams_and_nothing_else_that_is_open() -> None:
    _, shown, _ = bash("cd /proc/$$/fd; for one in *; do readlink $one; done")
    stdin, stdout, stderr = shown.splitlines()  # what bash listed the folder by is closed again
    assert stdin == "/dev/null"
    assert stdout.startswith("pipe:")
    assert stderr.startswith("pipe:")


def test_it_has_a_session_of_its_own_and_nothing_of_roots_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    _, shown, _ = bash("""ps -o sid= -p $$; pwd; id -un; echo "-${SECRET-}-" """)
    theirs, where, who, secret = shown.split()
    assert int(theirs) != os.getsid(0)
    assert (where, who, secret) == ("/", USER, "--")


def test_a_users_command_ends_when_its_output_reaches_the_limit() -> None:
    begun = time.monotonic()
    ended = as_user(USER, "yes", limit=30, most=100)
    assert ended.output == "y\n" * 50
    assert time.monotonic() - begun < 20


HOLDERS = {
    "ignores the signal to end": "trap '' TERM; tail -f /dev/null",
    "is stopped": "kill -STOP $$",
    "closes its streams and goes on": "exec >/dev/null 2>&1; tail -f /dev/null",
}


@pytest.mark.parametrize("program", HOLDERS.values(), ids=HOLDERS)
def test_a_program_that_does_not_end_is_ended_at_its_limit(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(accounts, "_END_SECONDS", 0.5)
    begun = time.monotonic()
    assert bash(program, limit=0.5)[0] == 124
    assert time.monotonic() - begun < 20


def test_a_program_of_a_script_ends_with_the_script() -> None:
    words = [USER, "60", "99", "bash", "-c", "echo $$ >&2; exec tail -f /dev/null"]
    code = f"import sys; from components.node.accounts import main; sys.exit(main({words!r}))"
    started = [sys.executable, "-c", code]
    with subprocess.Popen(started, cwd=Path(__file__).parents[4], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        program = process.stderr.readline().strip()
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
    assert program
    assert wait_until(lambda: not Path("/proc", program).exists(), 20)


def test_a_child_that_keeps_the_streams_is_not_waited_for_and_has_no_lock(lock: Path) -> None:
    begun = time.monotonic()
    status, said, _ = bash("setsid timeout 60 tail -f /dev/null & echo said")
    assert (status, said) == (0, "said\n")
    assert time.monotonic() - begun < 20
    with lock.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # root still has it


def test_errors_are_logged_at_once_and_a_program_ends_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(BaseException):
        """The log is written to while the program runs."""

    log = mock.Mock(write=mock.Mock(side_effect=Stopped))
    monkeypatch.setattr(sys, "stderr", log)
    with pytest.raises(Stopped):
        bash("echo $$ >&2; exec tail -f /dev/null", limit=60)
    assert not Path("/proc", log.write.call_args.args[0].strip()).exists()
