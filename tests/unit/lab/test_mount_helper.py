"""The NFS mount helper: its command line, libnfs's errors, and calls that outlive a connection."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.nfs_mount.caller import was_killed
from lab.nfs_mount.errors import Lost, failure
from lab.nfs_mount.file_system import NfsFileSystem
from lab.nfs_mount.request import parse_request
from lab.nfs_mount.session import Handle, Server, Session


def test_a_version_other_than_4_and_a_source_without_a_server_and_path_are_refused() -> None:
    for version in ("3", "4.9", ""):
        with pytest.raises(ValueError, match="only version 4"):
            parse_request(["head:/shared", "/mnt", "-o", f"vers={version}"])
    for source in ("head", "head:shared", ":/shared"):
        with pytest.raises(ValueError, match="is not server:/path"):
            parse_request([source, "/mnt"])


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (-errno.ENOENT, "NFS4: LOOKUP failed with NFS4ERR_NOENT(-2)", errno.ENOENT),
        (-errno.ERANGE, "NFS4: OPEN failed with NFS4ERR_ACCESS(-13)", errno.EACCES),
        (-errno.ERANGE, "NFS4: WRITE failed with NFS4ERR_DQUOT(-34)", errno.EDQUOT),
        (-errno.ERANGE, "NFS4: X failed with NFS4ERR_LAYOUTTRYLATER(-34)", errno.EIO),
        (-errno.EINVAL, "Insufficient ACCESS. Wanted 1 but got 0.", errno.EACCES),
        (-errno.ENOMEM, "Out of memory", errno.ENOMEM),
    ],
)
def test_the_servers_answer_becomes_its_errno(code: int, message: str, expected: int) -> None:
    error = failure(code, message)
    assert isinstance(error, OSError)
    assert error.errno == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-errno.ERANGE, "NFS4: READ failed with NFS4ERR_EXPIRED(-11)"),
        (-errno.ERANGE, "NFS4: OPEN failed with NFS4ERR_STALE_CLIENTID(-5)"),
        (-errno.EFAULT, "NFS4: an older call failed with NFS4ERR_NOENT(-2)"),
        (-errno.EINTR, "Command timed out"),
        (-errno.EIO, "nfs_service failed"),
    ],
)
def test_the_helper_distinguishes_lost_connections_and_lost_state_from_answers(code: int, message: str) -> None:
    assert isinstance(failure(code, message), Lost)


class Library(SimpleNamespace):
    """Stands in for libnfs: counts connections; `open_fails` says whether opening a file does."""

    def __init__(self) -> None:
        super().__init__(connections=0, opened=[])

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0

    def nfs_init_context(self) -> int:
        self.connections += 1
        return self.connections

    def nfs_get_fd(self, context: Any) -> int:
        return -1

    def nfs_get_error(self, context: Any) -> bytes:
        return b""

    def nfs_open(self, context: Any, path: bytes, flags: int, pointer: Any) -> int:
        self.opened.append((self.connections, path))
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """A stand-in for libnfs, and no waiting."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return Library()


@pytest.fixture
def session(library: Library) -> Any:
    """A session over the stand-in."""
    return Session(cast(Any, library), Server("127.0.0.1", "/shared"), 1500, 1500)


def once(error: Exception, then: Any) -> Callable[[], Any]:
    """Return a function that raises `error` the first time and `then`, or returns it, later on."""
    answers = iter([error])

    def action() -> Any:
        for first in answers:
            raise first
        if isinstance(then, Exception):
            raise then
        return then

    return action


def test_a_lost_call_is_repeated_over_a_new_connection(session: Any, library: Library) -> None:
    assert session.run(once(Lost("gone"), 7)) == 7
    assert library.connections == 2


def test_a_repeated_call_that_finds_its_work_done_has_succeeded_and_a_first_call_has_not(session: Any) -> None:
    done = FileExistsError(errno.EEXIST, "there")
    assert session.run(once(Lost("gone"), done), repeated_error=errno.EEXIST) is None
    with pytest.raises(FileExistsError):
        session.run(once(done, None), repeated_error=errno.EEXIST)


def test_a_call_outlives_a_server_that_is_away_for_a_day(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    tries = iter(range(25))

    def action() -> int:
        for _ in tries:
            raise Lost("nobody answers")
        return 7

    assert session.run(action) == 7


def test_a_caller_that_is_killed_waits_no_longer(session: Any) -> None:
    def action() -> None:
        session.killed = lambda: True
        raise Lost("nobody answers")

    with pytest.raises(OSError, match="killed") as caught:
        session.run(action)
    assert caught.value.errno == errno.EINTR


@pytest.mark.parametrize(
    ("pending", "exit_code", "killed"),
    [("0", "0", False), ("4000", "0", False), ("0", "256", False), ("100", "0", True), ("0", "9", True)],
)
def test_a_caller_with_a_deadly_signal_is_killed(tmp_path: Path, pending: str, exit_code: str, killed: bool) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(f"Name:\tsh\nSigPnd:\t{pending:>016}\nShdPnd:\t{0:016}\n", encoding="utf-8")
    (tmp_path / "7" / "stat").write_text(f"7 (sh) D 1 7 {exit_code}\n", encoding="utf-8")
    assert was_killed(7, tmp_path) is killed


def test_an_open_file_is_opened_again_on_a_new_connection_and_only_then(session: Any, library: Library) -> None:
    session.run(lambda: None)
    handle = Handle(session, b"/f", 0, ctypes.c_void_p(1), session.generation)
    session.run(lambda: session.pointer(handle))
    assert library.opened == []
    session.run(once(Lost("gone"), None))
    session.run(lambda: session.pointer(handle))
    session.run(lambda: session.pointer(handle))
    assert library.opened == [(2, b"/f")]


def test_a_file_that_a_node_removed_is_stale(session: Any, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "nfs_open", lambda *_: -errno.ENOENT)
    files = NfsFileSystem(lambda uid, gid: session, lambda: (1500, 1500, 1))
    with pytest.raises(OSError, match="removed") as caught:
        files.open("/f", SimpleNamespace(flags=os.O_WRONLY))
    assert caught.value.errno == errno.ESTALE


def test_an_unconfirmed_append_writes_again_at_the_same_place(session: Any, library: Library) -> None:
    places, size = [], 10

    def fstat(context: Any, pointer: Any, found: Any) -> int:
        found._obj.size = size
        return 0

    def pwrite(context: Any, pointer: Any, offset: Any, count: Any, data: bytes) -> int:
        nonlocal size
        places.append(offset.value)
        size = max(size, offset.value + len(data))
        return -errno.EINTR if len(places) == 1 else len(data)

    library.nfs_fstat64, library.nfs_pwrite = fstat, pwrite
    files = NfsFileSystem(lambda uid, gid: session, lambda: (1500, 1500, 1))
    session.run(lambda: None)
    info = SimpleNamespace(flags=os.O_APPEND, fh=files._register(Handle(session, b"/f", 0, ctypes.c_void_p(1), 1)))
    assert files.write("/f", b"12345", 0, info) == 5
    assert (places, size) == ([10, 10], 15)


def test_open_files_follow_a_renamed_folder(session: Any) -> None:
    files = NfsFileSystem(lambda uid, gid: session, lambda: (1500, 1500, 1))
    handles = [Handle(session, path, 0, ctypes.c_void_p(), 0) for path in (b"/d/f", b"/d", b"/dd/f")]
    for handle in handles:
        files._register(handle)
    files.rename("/d", "/new")
    assert [handle.path for handle in handles] == [b"/new/f", b"/new", b"/dd/f"]


def test_each_caller_has_a_session_of_their_own(library: Library) -> None:
    asked: list[tuple[int, int]] = []
    callers = iter([(1, 1, 9), (2, 2, 9), (1, 1, 9)])

    def new_session(uid: int, gid: int) -> Any:
        asked.append((uid, gid))
        return Session(cast(Any, library), Server("127.0.0.1", "/shared"), uid, gid)

    files = NfsFileSystem(new_session, lambda: next(callers))
    for _ in range(3):
        files.unlink("/x")
    assert asked == [(1, 1), (2, 2)]
