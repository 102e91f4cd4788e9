"""Files that root writes converge and appear whole, and no account leads root elsewhere. For real."""

import errno
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from components.node import accounts, files, folders, safe_path
from components.node.failure import Failure
from components.node.run import Ended

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of other accounts")
THEIRS = 1  # the account daemon of every Debian


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that stands for the whole machine; `/outside` has a secret of root."""
    place = Path(tempfile.mkdtemp(prefix="tailrack-files."))
    place.chmod(0o755)
    for name in ("etc", "var", "outside"):
        (place / name).mkdir(mode=0o755)
    (place / "outside/file").write_text("precious\n")
    (place / "outside/file").chmod(0o600)
    monkeypatch.setattr(safe_path, "root", str(place))
    yield place
    shutil.rmtree(place)


def give_to_others(path: Path) -> None:
    path.mkdir()
    os.chown(path, THEIRS, THEIRS)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_file_is_written_and_a_file_as_it_should_be_stays_and_gets_its_mode(machine: Path) -> None:
    assert files.write("/etc/new/folder/file", "one\ntwo", 0o640)
    path = machine / "etc/new/folder/file"
    assert path.read_text() == "one\ntwo\n"
    assert (mode_of(path), mode_of(path.parent)) == (0o640, 0o755)
    before = path.stat()
    path.chmod(0o666)
    assert not files.write("/etc/new/folder/file", "one\ntwo", 0o600)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, mode_of(path)) == (before.st_ino, before.st_mtime_ns, 0o600)


@pytest.mark.parametrize("old", ["", "other\n", "text", "text\n\n", "text\0\n"])
def test_a_file_that_differs_by_a_byte_is_replaced_and_its_readers_go_on(machine: Path, old: str) -> None:
    path = machine / "etc/file"
    path.write_text(old)
    with path.open() as reader:
        assert files.write("/etc/file", "text")
        assert reader.read() == old
    assert path.read_text() == "text\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


@as_root
@pytest.mark.parametrize("old", ["", "text\n"])
def test_a_file_of_another_owner_is_given_to_that_one(machine: Path, old: str) -> None:
    (machine / "etc/file").write_text(old)
    files.write("/etc/file", "text", 0o640, "daemon")
    state = (machine / "etc/file").stat()
    assert (state.st_uid, state.st_gid) == (THEIRS, THEIRS)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_can_read_an_unfinished_file(machine: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    modes = []
    set_owner = files._set_owner

    def seen(descriptor: int, uid: int, gid: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        set_owner(descriptor, uid, gid, mode)

    monkeypatch.setattr(files, "_set_owner", seen)
    before = os.umask(umask)
    try:
        files.write("/etc/file", "secret", 0o644)
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert mode_of(machine / "etc/file") == 0o644


def test_a_disk_that_is_full_leaves_the_old_file_whole_and_says_so(machine: Path) -> None:
    (machine / "etc/file").write_text("old\n")
    # A process that may write no more than 4 KiB into a file gets the error of a full disk.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(Failure, match="cannot write /etc/file: ") as caught:
            files.write("/etc/file", "x" * 9000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "make room" in caught.value.remedy
    assert (machine / "etc/file").read_text() == "old\n"
    assert [entry.name for entry in (machine / "etc").iterdir()] == ["file"]


def test_a_link_or_fifo_in_the_place_of_a_file_is_replaced_and_not_read(machine: Path) -> None:
    (machine / "etc/file").symlink_to(machine / "outside/file")
    os.mkfifo(machine / "etc/fifo")
    for name in ("file", "fifo"):
        assert files.read(f"/etc/{name}") is None
        assert files.write(f"/etc/{name}", "text")
        assert files.read(f"/etc/{name}") == "text\n"
    assert not (machine / "etc/file").is_symlink()
    assert (machine / "outside/file").read_text() == "precious\n"


def test_a_folder_in_the_place_of_a_file_is_an_error_that_leaves_nothing(machine: Path) -> None:
    (machine / "etc/file").mkdir()
    (machine / "etc/file/theirs").write_text("")
    with pytest.raises(Failure, match="cannot write /etc/file: "):
        files.write("/etc/file", "text")
    assert [entry.name for entry in (machine / "etc").iterdir()] == ["file"]


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o700])
def test_root_opens_nothing_in_a_folder_of_another_account(machine: Path, mode: int) -> None:
    give_to_others(machine / "theirs")
    (machine / "theirs").chmod(mode)
    (machine / "theirs/file").symlink_to("/outside/file")
    for attempt in (
        lambda: files.write("/theirs/file", "text"),
        lambda: files.write("/theirs/new/file", "text"),
        lambda: files.read("/theirs/file"),
        lambda: files.remove("/theirs/file"),
        lambda: files.make_folder("/theirs/folder"),
        lambda: files.open_to_lock("/theirs/lock"),
        lambda: files.names_in("/theirs/folder"),
    ):
        with pytest.raises(Failure):
            attempt()
    assert [entry.name for entry in (machine / "theirs").iterdir()] == ["file"]
    assert (machine / "outside/file").read_text() == "precious\n"


@as_root
def test_root_writes_nothing_in_a_folder_that_everybody_can_change_or_by_a_path_with_dots(machine: Path) -> None:
    for path in ("/etc/../outside/file", "etc/file"):
        with pytest.raises(ValueError, match="must be an absolute path"):
            files.write(path, "text")
    (machine / "all").mkdir()
    (machine / "all").chmod(0o1777)
    for path in ("/all/file", "/all/folder/file"):
        with pytest.raises(Failure, match="another account can change"):
            files.write(path, "text")
    assert list((machine / "all").iterdir()) == []


@as_root
def test_a_step_follows_only_links_that_root_made(machine: Path) -> None:
    (machine / "run").mkdir()
    (machine / "var/run").symlink_to("/run")
    files.write("/var/run/file", "text")
    assert (machine / "run/file").read_text() == "text\n"
    (machine / "var").chmod(0o777)
    with pytest.raises(Failure, match="link that another account can change"):
        files.write("/var/run/file", "more")


@as_root
@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_step_changes_no_owner_through_a_link_in_a_folders_place(machine: Path, kind: str) -> None:
    if kind == "link":
        (machine / "var/state").symlink_to("/outside")
    else:
        (machine / "var/state").write_text("")
    with pytest.raises(Failure, match="/var/state is a link or a file and must be a folder"):
        folders.give("daemon", 0o700, "/var/state")
    assert (machine / "outside").stat().st_uid == 0


@as_root
def test_files_in_a_folder_get_its_owner_unless_they_have_a_second_name(machine: Path) -> None:
    give_to_others(machine / "var/state")
    os.chown(machine / "var/state", 2, 2)
    (machine / "var/state/own").write_text("")
    os.link(machine / "outside/file", machine / "var/state/linked")
    (machine / "var/state/link").symlink_to("/outside/file")
    folders.give("daemon", 0o700, "/var/state")
    assert (machine / "var/state/own").stat().st_uid == THEIRS
    assert (machine / "var/state").stat().st_uid == THEIRS
    assert (machine / "outside/file").stat().st_uid == 0
    assert folders.read_theirs("/var/state/own") is not None or not shutil.which("runuser")


@as_root
def test_the_parts_of_a_path_include_their_owners_and_follow_no_link(machine: Path) -> None:
    give_to_others(machine / "var/theirs")
    (machine / "var/theirs/link").symlink_to(machine / "outside")
    parts = folders.parts_of("/var/theirs/link/file")
    assert [(part.path, part.type, part.uid) for part in parts] == [
        ("/var", stat.S_IFDIR, 0),
        ("/var/theirs", stat.S_IFDIR, THEIRS),
        ("/var/theirs/link", stat.S_IFLNK, 0),
    ]
    assert folders.parts_of("/") == folders.parts_of("/nothing") == []


def test_root_makes_and_removes_its_folders_in_one_like_tmp_and_takes_nobodys(machine: Path) -> None:
    place = machine / "var/open"
    place.mkdir()
    place.chmod(0o1777)
    folders.make_new_folder("/var/open/ours")
    assert mode_of(place / "ours") == 0o755
    (place / "ours/file").touch()
    assert not files.remove_if_empty("/var/open/ours")
    (place / "link").symlink_to(machine / "outside")
    for name in ("ours", "link"):
        with pytest.raises(FileExistsError):
            folders.make_new_folder(f"/var/open/{name}")
    (place / "ours/file").unlink()
    (place / "ours/inner").mkdir()
    (place / "ours/link").symlink_to(place)
    assert folders.folders_in("/var/open/ours") == {"inner": (os.geteuid(), os.getegid())}
    assert files.remove_if_empty("/var/open/ours/inner")
    assert folders.folders_in("/var/nothing") == {}
    assert not files.remove_if_empty("/var/nothing/inner")
    place.chmod(0o777)
    with pytest.raises(Failure, match="another account can replace"):
        folders.make_new_folder("/var/open/more")


def test_a_folder_goes_with_all_that_is_in_it_and_nothing_behind_its_links(machine: Path) -> None:
    (machine / "var/state/deep").mkdir(parents=True)
    (machine / "var/state/link").symlink_to("/outside")
    (machine / "var/state/deep/file").write_text("")
    files.remove_folder("/var/state")
    assert not (machine / "var/state").exists()
    assert (machine / "outside/file").exists()
    files.remove_folder("/var/state")


def test_a_folder_goes_whole_while_another_process_removes_from_it(machine: Path) -> None:
    for name in "abcdef":
        (machine / "var/state" / name).mkdir(parents=True)
    rmdir, met = os.rmdir, list[str]()

    def first_taken(path: str, **where: int) -> None:
        rmdir(path, **where)
        if not met:
            met.append(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    with mock.patch.object(os, "rmdir", first_taken):
        files.remove_folder("/var/state")
    assert met
    assert not (machine / "var/state").exists()


def test_a_read_only_file_system_is_an_error_of_room(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert files.room_error("/etc") == "Read-only file system"
    assert list((machine / "etc").iterdir()) == []


@as_root
def test_files_of_all_folders_in_a_folder_are_read_but_no_links_unfinished_ones_or_theirs(machine: Path) -> None:
    for path, text in {"a/site": "rack\n", "a/other": "x\n", "b/owner": "\n", ".c/site": "x\n"}.items():
        (machine / "var" / path).parent.mkdir(exist_ok=True)
        (machine / "var" / path).write_text(text)
    (machine / "var/b/site").symlink_to(machine / "outside/file")
    (machine / "var/link").symlink_to(machine / "var/a")
    (machine / "var/file").touch()
    assert files.read_parts("/var", ["site", "owner"]) == {"a": {"site": "rack\n"}, "b": {"owner": "\n"}}
    assert files.read_parts("/var/none", ["site"]) == {}
    give_to_others(machine / "var/d")
    with pytest.raises(Failure, match="another account can change /var/d"):
        files.read_parts("/var", ["site"])


@as_root
def test_an_accounts_folder_is_emptied_but_nothing_behind_its_links(machine: Path) -> None:
    give_to_others(machine / "var/theirs")
    (machine / "var/theirs/sub").mkdir()
    (machine / "var/theirs/sub/file").touch()
    (machine / "var/theirs/link").symlink_to(machine / "outside")
    folders.empty_folder("/var/theirs")
    assert list((machine / "var/theirs").iterdir()) == []
    (machine / "var/link").symlink_to(machine / "outside")
    folders.empty_folder("/var/link")
    assert (machine / "outside/file").exists()


@as_root
def test_a_file_in_an_accounts_folder_is_read_as_the_account(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "var/theirs/state").mkdir(parents=True)
    os.chown(machine / "var/theirs", THEIRS, THEIRS)
    names: list[str] = []

    def as_user(name: str, *arguments: str, limit: float, most: int) -> Ended:
        names.append(name)
        return Ended(0, "text")

    monkeypatch.setattr(accounts, "as_user", as_user)
    assert folders.read_theirs("/var/theirs/state/file") == "text"
    assert names == ["daemon"]
    assert folders.read_theirs("/var/none/file") is None
