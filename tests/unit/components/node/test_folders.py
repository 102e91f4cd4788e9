"""folders.py on a real file system: root follows, changes and reads nothing that an account put in its folder."""

import os
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from components.node import files, folders, safe_path
from components.node.failure import Failure
from components.node.folders import Acl, acl_of

USER = "daemon"  # an account of every Debian that owns nothing
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to accounts")

# In the place of something in an account's folder; {outside} is a folder of root's with a file.
TRAPS = {
    "a link to a folder": "ln -s {outside} {path}",
    "a link to a file": "ln -s {outside}/file {path}",
    "a link to nothing": "ln -s {outside}/new {path}",
    "a FIFO": "mkfifo {path}",
    "a file": "echo mine >{path}",
}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine's root that others reach: `theirs` is the account's, and only root enters `outside`."""
    folder = Path(tempfile.mkdtemp(prefix="tailrack-folders."))
    folder.chmod(0o755)
    (folder / "theirs").mkdir(mode=0o755)
    shutil.chown(folder / "theirs", USER, USER)
    (folder / "outside").mkdir(mode=0o700)
    (folder / "outside" / "file").write_text("precious\n")
    (folder / "outside" / "file").chmod(0o600)
    monkeypatch.setattr(safe_path, "root", str(folder))
    yield folder
    shutil.rmtree(folder)


def as_theirs(command: str) -> int:
    """Run a command as the account."""
    return subprocess.run(["runuser", "-u", USER, "--", "sh", "-c", command], capture_output=True).returncode


def seen(folder: Path) -> list[tuple[str, int, int, int, str]]:
    """Everything about what lies outside: names, owners, modes, texts."""
    found = []
    for path in sorted([folder / "outside", *(folder / "outside").rglob("*")]):
        about = path.lstat()
        text = path.read_text() if stat.S_ISREG(about.st_mode) else ""
        found.append((path.name, about.st_uid, about.st_gid, about.st_mode, text))
    return found


@as_root
@pytest.mark.parametrize("trap", TRAPS)
def test_a_step_names_an_obstacle_in_an_accounts_folders_place_and_changes_nothing(place: Path, trap: str) -> None:
    before, state = seen(place), place / "theirs" / "state"
    assert as_theirs(TRAPS[trap].format(path=state, outside=place / "outside")) == 0
    folders.take("/theirs")
    with pytest.raises(Failure, match="/theirs/state is a link or a file"):
        folders.give(USER, 0o700, "/theirs/state")
    assert seen(place) == before


@as_root
def test_a_folder_inside_an_accounts_and_links_in_place_of_roots_are_not_worked_on(place: Path) -> None:
    with pytest.raises(Failure, match="/theirs does not belong to root"):
        folders.give(USER, 0o700, "/theirs/state")
    assert [*(place / "theirs").iterdir()] == []
    before = seen(place)
    (place / "link").symlink_to(place / "outside")
    with pytest.raises((Failure, OSError)):
        folders.take("/link", 0o777)
    # Though its text is the wanted one.
    (place / "key").symlink_to(place / "outside" / "file")
    files.write("/key", "precious", 0o644, USER)
    assert not (place / "key").is_symlink()
    assert seen(place) == before


@as_root
def test_root_owns_a_reclaimed_folder_and_the_account_owns_only_its_subfolders(place: Path) -> None:
    theirs = place / "theirs"
    for _ in range(2):
        folders.take("/theirs")
        folders.give(USER, 0o700, "/theirs/state")
    assert as_theirs(f"mv {theirs}/state {theirs}/away") != 0
    assert as_theirs(f"echo x >{theirs}/new") != 0
    assert as_theirs(f"echo x >{theirs}/state/new") == 0


@as_root
def test_an_account_that_swaps_its_folder_for_links_all_the_time_gets_nothing_of_roots(place: Path) -> None:
    theirs, before = place / "theirs", seen(place)
    swap = (
        f"cd {theirs} && echo begun && while :; do mkdir -p state; mv state kept; ln -s {place}/outside state; "
        "rm -f state; mv kept state; done"
    )
    words = ["runuser", "-u", USER, "--", "timeout", "--foreground", "-s", "KILL", "60", "sh", "-c", swap]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(words, stdout=pipe, stderr=quiet, start_new_session=True) as attack:
        try:
            # It is in the folder before root changes that.
            assert attack.stdout
            assert attack.stdout.readline() == b"begun\n"
            # As it is after each upgrade of a package, then the step.
            for _ in range(100):
                shutil.chown(theirs, USER)
                folders.take("/theirs")
                with suppress(Failure, OSError):
                    folders.give(USER, 0o700, "/theirs/state")
            assert attack.poll() is None, "the attack goes on until the end"
        finally:
            os.killpg(attack.pid, signal.SIGKILL)
    assert seen(place) == before


@as_root
def test_files_of_another_account_get_the_new_owner_unless_they_have_a_second_name(place: Path) -> None:
    data = place / "data"
    (data / "inner").mkdir(parents=True)
    (data / "inner" / "own").write_text("x")
    (data / "linked").symlink_to(place / "outside" / "file")
    os.link(place / "outside" / "file", data / "second")
    before = seen(place)
    folders.give(USER, 0o700, "/data")
    assert {path.name: path.lstat().st_uid == 0 for path in [data, *data.rglob("*")]} == {
        "data": False, "inner": False, "own": False, "linked": False, "second": True,
    }  # fmt: skip
    assert seen(place) == before


@as_root
def test_a_file_in_an_accounts_folder_is_read_as_the_account(place: Path) -> None:
    theirs = place / "theirs"
    as_theirs(f"echo mine >{theirs}/name; ln -s {place}/outside/file {theirs}/link")
    assert folders.read_theirs("/theirs/name") == "mine\n"
    assert "precious" not in (folders.read_theirs("/theirs/link") or "")
    # Taken back meanwhile: root would be the one who reads.
    folders.take("/theirs")
    assert "precious" not in (folders.read_theirs("/theirs/link") or "")


def test_named_users_and_groups_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    none = 2**32 - 1
    rows = [(1, 7, none), (2, 0, 1500), (2, 5, 7001), (4, 5, none), (8, 4, 27), (16, 5, none), (32, 5, none)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    monkeypatch.setattr(os, "getxattr", lambda *_: data)
    assert acl_of("/x") == Acl({1500: 0, 7001: 5}, {27: 4})
