"""The users' homes in the backup: bad config, saving, leaving out and restoring."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from components.node import files, run
from components.node.failure import Failure
from components.node.run import Ended
from components.roles.backup import home_archive, homes, snapshots
from components.roles.backup.home_archive import Home, Listing
from components.roles.backup.record import recorded
from components.roles.backup.remove import HOMES_PROGRAM, HOMES_RECORD
from components.roles.order import roles
from components.roles.restore.homes import restore_homes
from components.roles.users.accounts import Account
from stacks.config import ConfigError, parse
from tests.unit.configs import HOST_KEY, LAB, PRIVATE_KEY, RawConfig

BACKUP: RawConfig = {
    "target": "sftp:keeper@192.0.2.9:/srv/backup/lab",
    "host_key": HOST_KEY,
    "private_key": PRIVATE_KEY,
    "password": "password-nobody-may-see",
}


def parsed(section: Any) -> Any:
    backup = {**BACKUP, **({} if section is None else {"homes": section})}
    return parse({**copy.deepcopy(LAB), "backup": backup}, base_dir=Path(), secret_keys=frozenset({"backup"}))


@pytest.mark.parametrize(
    ("section", "key", "problem"),
    [
        ({"max_gb": 0}, "max_gb", "from 1 to 100000"),
        ({"max_gb": "all"}, "max_gb", "from 1 to 100000"),
        ({"exclude": ".cache"}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["/shared/home/ada"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["../bob"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["ada/**/x"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["$HOME"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["!keep"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["a\n/b"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["#x"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["[a"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["a", "*"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": ["*/*"]}, "exclude", "names and relative paths of letters"),
        ({"exclude": [""]}, "exclude", "names and relative paths of letters"),
        ({"folder": "/x"}, "folder", ""),
    ],
)
def test_a_limit_or_pattern_that_cannot_be_meant_is_refused(section: RawConfig, key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(section)
    assert f"tailrack:backup.homes.{key}" in str(refused.value)
    assert problem in str(refused.value)


def test_without_the_section_the_head_node_has_no_file_of_it() -> None:
    for section, there in ((None, False), ({}, True)):
        (backup,) = [role for role in roles(parsed(section)) if role.name == "backup"]
        paths = {file.path for file in backup.files["services"]}
        assert ({HOMES_PROGRAM, "/etc/systemd/system/tailrack-backup-homes.service"} <= paths) == there
        assert any("homes" in path for path in paths) == there
        assert (backup.values["BACKUP_HOMES_MAX_GB"] == 0) != there


class Target:
    """A repository that understands the commands of restic that the programs use.

    fails   how a command ends instead, by its name
    """

    def __init__(self) -> None:
        self.calls, self.fails = list[tuple[str, ...]](), dict[str, Ended]()
        self.rows, self.archives = list[dict[str, Any]](), dict[str, bytes]()

    def restic(self, _: str, *words: str, stdin: int | None = None, into: int | None = None, **__: Any) -> Ended:
        words = tuple(word for word in words if word != "--no-lock")
        self.calls.append(words)
        if failure := self.fails.get(words[0]):
            return failure
        if words[0] == "snapshots":
            return Ended(0, json.dumps([row for row in self.rows if words[-1] in row["tags"]]))
        if words[0] == "backup":
            assert stdin is not None
            with os.fdopen(os.dup(stdin), "rb") as stream:
                self.add(words[4].split(","), stream.read(), cluster=words[2])
        if words[0] == "tag":
            for row in self.rows:
                if row["id"] in words[5:]:
                    row["tags"] = [words[2], *(tag for tag in row["tags"] if tag != words[4])]
        if words[0] == "forget":
            self.rows = [row for row in self.rows if row["id"] not in words]
        if words[0] == "dump":
            assert into is not None
            with os.fdopen(os.dup(into), "wb") as stream:
                stream.write(self.archives[words[1]])
        return Ended(0, "")

    def add(self, tags: list[str], data: bytes = b"", cluster: str = "lab", hour: int = 1) -> str:
        """Add a backup and return its id."""
        id_ = f"{len(self.archives) + 1:08x}"
        self.rows.append(
            {"id": id_, "hostname": cluster, "time": f"2026-11-26T{hour:02d}:00:{len(self.rows):02d}Z", "tags": tags}
        )
        self.archives[id_] = data
        return id_

    def ran(self, command: str) -> list[tuple[str, ...]]:
        return [call for call in self.calls if call[0] == command]

    def saved(self) -> dict[str, set[str]]:
        """Return the names in the archive of each home that is saved as complete."""
        archives = {}
        for row in self.rows:
            if homes.TAG in row["tags"]:
                with tarfile.open(fileobj=io.BytesIO(self.archives[row["id"]])) as archive:
                    archives[row["tags"][-1]] = {name.removeprefix("./") for name in archive.getnames()} - {"."}
        return archives


class Head:
    """A head node in a folder. Programs that would run as another account run, and their accounts are noted."""

    def __init__(self, root: Path) -> None:
        self.root, self.target = root, Target()
        self.home = root / "export/shared/home"
        self.home.mkdir(parents=True)

    def write(self, path: str, size: int = 1) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))
        return file

    @property
    def accounts(self) -> list[str]:
        return (self.root / "accounts").read_text().splitlines()


SETPRIV = """#!/bin/bash
echo "$1 $2 $3" >>{root}/accounts
shift 4
exec "$@"
"""


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    made = Head(tmp_path)
    stub = tmp_path / "bin" / "setpriv"
    stub.parent.mkdir()
    stub.write_text(SETPRIV.format(root=tmp_path))
    stub.chmod(0o755)
    monkeypatch.setattr(run, "PATH", f"{stub.parent}:{run.PATH}")
    monkeypatch.setattr(files, "root", str(tmp_path))
    monkeypatch.setattr(files, "folders_in", lambda path: owners(tmp_path / path.removeprefix("/")))
    for module in (homes, home_archive, snapshots):
        monkeypatch.setattr(module, "restic", made.target.restic)
    (tmp_path / "etc/tailrack/backup").mkdir(parents=True)
    (tmp_path / "etc/tailrack/backup/cluster").write_text("lab\n")
    homes.write_settings("/export/shared/home", 1, [".cache", "*.ckpt", "bob/data"])
    return made


def owners(path: Path) -> dict[str, tuple[int, int]]:
    """Return the folders in a folder, as if each had its own owner."""
    return {entry.name: (6001 + number, 7000) for number, entry in enumerate(sorted(path.iterdir()))}


def reason() -> str:
    return recorded(HOMES_RECORD, "reason")


def test_each_home_is_read_as_its_owner_and_saved_without_excluded_files(head: Head) -> None:
    for path in ("ada/text", "ada/.cache/x", "ada/runs/a.ckpt", "ada/data/x", "bob/data/x", "bob/sub/data/x"):
        head.write(path)
    (head.home / "ada" / "link").symlink_to("/etc/shadow")
    assert homes.main([]) == 0
    assert head.target.saved() == {
        "home-ada": {"text", "link", "runs", "data", "data/x"},
        "home-bob": {"sub", "sub/data", "sub/data/x"},
    }
    first, second = ("--reuid=6001 --regid=7000 --clear-groups", "--reuid=6002 --regid=7000 --clear-groups")
    assert sorted(head.accounts) == [first, first, second, second]
    assert recorded(HOMES_RECORD, "done").isdecimal()
    assert reason() == ""


def test_a_home_that_has_not_changed_is_not_read_again_unless_the_target_lacks_it(head: Head) -> None:
    head.write("ada/text")
    head.write("bob/text")
    assert homes.main([]) == 0
    head.write("bob/text", 2)
    assert homes.main([]) == 0
    assert [call[-1] for call in head.target.ran("backup")] == ["ada.tar", "bob.tar", "bob.tar"]
    head.target.rows = [row for row in head.target.rows if "home-ada" not in row["tags"]]
    assert homes.main([]) == 0
    assert head.target.ran("backup")[-1][-1] == "ada.tar"
    assert len(head.target.ran("backup")) == 4


def test_above_the_limit_the_largest_home_is_left_out_and_named_and_holes_do_not_count(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "_GB", 10**6)
    head.write("ada/text", 5)
    with head.write("ada/map").open("r+b") as file:
        file.truncate(2_000_000_000)
    head.write("bob/large", 1_500_000)
    assert homes.main([]) == 1
    assert reason() == (
        "LEFT OUT: bob (1.5 GB): the homes have 1.5 GB, more than tailrack:backup.homes.max_gb (1); remove files, or "
        "change max_gb or exclude"
    )
    assert [*head.target.saved()] == ["home-ada"]


def test_a_home_that_fails_is_named_and_stops_no_other_one(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.write("ada/text")
    head.write("bob/text")
    pack = Home.pack

    def fail(home: Home, stream: home_archive.Stream, size: int) -> None:
        pack(home, stream, size)
        if home.name == "ada":
            raise Failure("tar failed with status 124")

    monkeypatch.setattr(Home, "pack", fail)
    assert homes.main([]) == 1
    assert reason() == "ada: tar failed with status 124"
    assert [*head.target.saved()] == ["home-bob"]
    monkeypatch.setattr(Home, "pack", pack)
    assert homes.main([]) == 0
    assert sorted(head.target.saved()) == ["home-ada", "home-bob"]
    assert not [row for row in head.target.rows if homes.PART_TAG in row["tags"]]


def test_a_home_that_grows_without_end_is_cut_off(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_archive, "_MORE_BYTES", 100)
    head.write("ada/text", 100_000)
    monkeypatch.setattr(Listing, "size", property(lambda _: 7, lambda *_: None), raising=False)
    assert homes.main([]) == 1
    assert reason() == "ada: it became too large while it was saved"
    assert head.target.saved() == {}


def test_a_target_that_fails_ends_the_run_with_its_reason_and_keeps_the_time_of_the_last_one(head: Head) -> None:
    head.write("ada/text")
    assert homes.main([]) == 0
    done = recorded(HOMES_RECORD, "done")
    head.target.fails["forget"] = Ended(11, "", "unable to create lock in backend: repository is already locked by 7")
    assert homes.main([]) == 0
    head.write("ada/text", 2)
    head.target.fails["backup"] = Ended(1, "", "Fatal: unable to open repository")
    assert homes.main([]) == 1
    assert reason() == "backup: Fatal: unable to open repository"
    assert recorded(HOMES_RECORD, "done") >= done


def test_a_target_that_stops_reading_is_reported_with_its_own_reason(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.write("ada/text", 1_000_000)
    broken = Ended(1, "", "Fatal: no space left")
    monkeypatch.setattr(home_archive, "restic", lambda *_, **__: broken)
    assert homes.main([]) == 1
    assert reason() == "backup: Fatal: no space left"


def test_a_folder_of_homes_that_another_account_can_change_is_refused(head: Head) -> None:
    head.home.chmod(0o777)
    assert homes.main([]) == 1
    assert "root alone can change" in reason()


def archive_of(folder: Path) -> bytes:
    return subprocess.run(["tar", "-c", "-C", folder, "."], check=True, capture_output=True).stdout


def account(name: str) -> Account:
    return Account(name, os.getuid(), os.getgid())


@pytest.fixture
def full(head: Head, tmp_path: Path) -> dict[str, str]:
    """A target with backups of two clusters: the ids of the backups of ada's home, by their hour."""
    for cluster, hour in (("lab", 1), ("lab", 3), ("other", 2)):
        head.target.add(["tailrack"], cluster=cluster, hour=hour)
    ids = {}
    for hour, cluster in ((1, "lab"), (2, "lab"), (4, "lab"), (5, "other")):
        for name in ("ada", "bob"):
            source = tmp_path / f"{name}-{hour}"
            source.mkdir(mode=0o711)
            (source / "text").write_text(f"{hour}")
            id_ = head.target.add([homes.TAG, f"home-{name}"], archive_of(source), cluster, hour)
            ids[f"{name}-{hour}"] = id_
    head.target.add([homes.PART_TAG, "home-ada"], b"cut off", hour=2)
    return ids


MADE = 1795654800  # 2026-11-26 01:00 UTC
ALL = (account("ada"), account("bob"))


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(("hour", "wanted"), [(1, "2"), (3, "4")])
def test_the_homes_that_belong_to_the_head_nodes_backup_are_restored(head: Head, hour: int, wanted: str) -> None:
    restore_homes("/keys", "lab", MADE + (hour - 1) * 3600 + 60, "/export/shared", ALL)
    for name in ("ada", "bob"):
        assert (head.home / name / "text").read_text() == wanted
        assert (head.home / name).stat().st_mode & 0o777 == 0o711
    assert {*head.accounts} == {f"--reuid={os.getuid()} --regid={os.getgid()} --clear-groups"}
    assert not (head.home.parent / ".tailrack-homes").exists()


@pytest.mark.usefixtures("full")
def test_a_home_that_exists_stays_and_a_second_time_changes_nothing(head: Head) -> None:
    head.write("ada/text").write_text("newer")
    for _ in range(2):
        restore_homes("/keys", "lab", MADE, "/export/shared", ALL)
    assert (head.home / "ada" / "text").read_text() == "newer"
    assert (head.home / "bob" / "text").exists()


@pytest.mark.usefixtures("full")
def test_the_home_of_a_former_user_is_not_restored_and_is_named(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    restore_homes("/keys", "lab", MADE, "/export/shared", [account("ada")])
    assert [path.name for path in head.home.iterdir()] == ["ada"]
    assert "tailrack:users does not contain them: the homes of bob" in "".join(capsys.readouterr())


@pytest.mark.parametrize("broken", ["archive", "target"])
def test_an_archive_that_cannot_be_read_is_reported_and_leaves_no_home(
    head: Head, full: dict[str, str], broken: str
) -> None:
    if broken == "archive":
        head.target.archives[full["ada-2"]] = b"no archive" * 1000
    else:
        head.target.fails["dump"] = Ended(1, "", "Fatal: pack 17 is damaged")
    with pytest.raises(Failure) as failure:
        restore_homes("/keys", "lab", MADE, "/export/shared", ALL)
    assert failure.value.reason.startswith("cannot restore the home of ada from backup ")
    assert ("damaged" in failure.value.reason) == (broken == "target")
    assert "tailrack:backup.homes" in failure.value.remedy
    assert list(head.home.iterdir()) == []


def test_without_a_backup_of_homes_nothing_is_made(head: Head) -> None:
    restore_homes("/keys", "lab", MADE, "/export/shared", ALL)
    assert list(head.home.parent.iterdir()) == [head.home]
