"""The users' homes in the backup: bad config, saving, leaving out and restoring."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from components.node import folders, safe_path
from components.node.failure import Failure
from components.node.run import Ended
from components.roles.access.users.accounts import Account
from components.roles.storage.backup import homes, program, restic
from components.roles.storage.backup.homes import HOMES_RECORD
from components.roles.storage.restore import host as restore_host
from tests.unit.components.roles.test_backup import SFTP
from tests.unit.configs import refusal


def test_a_limit_or_pattern_that_cannot_be_meant_is_refused() -> None:
    patterns = ("/shared/home/ada", "../bob", "ada/**/x", "$HOME", "!keep", "a\n/b", "#x", "[a", "*", "*/*", "")
    bad = [{"exclude": ".cache"}, *({"exclude": ["a", pattern]} for pattern in patterns)]
    for section, key, problem in (
        *((section, "exclude", "a list of paths") for section in bad),
        ({"max_gb": 0}, "max_gb", "from 1 to 100000"),
        ({"max_gb": "all"}, "max_gb", "from 1 to 100000"),
        ({"folder": "/x"}, "folder", ""),
    ):
        said = refusal({"backup": {**SFTP, "homes": section}}, "backup")
        assert f"tailrack:backup.homes.{key}" in said, section
        assert problem in said, section
    more = {"storage": {"homes": {"path": "/h", "type": "present"}}}
    said = refusal({**more, "backup": {**SFTP, "homes": {}}}, "backup")
    assert "tailrack:backup.homes: is set, and storage.homes is another server" in said


class Target:
    """A repository that understands the commands of restic that the programs use.

    fails   how a command ends instead, by its name
    """

    def __init__(self, root: Path) -> None:
        self.root, self.calls, self.fails = root, list[tuple[str, ...]](), dict[str, Ended]()
        self.rows = list[dict[str, Any]]()

    def restic(self, _: str, *words: str, **__: Any) -> Ended:
        words = tuple(word for word in words if word != "--no-lock")
        self.calls.append(words)
        if failure := self.fails.get(words[0]):
            return failure
        if words[0] == "snapshots":
            return Ended(0, json.dumps([row for row in self.rows if words[-1] in row["tags"]]))
        if words[0] == "restore":
            (row,) = [row for row in self.rows if row["id"] == words[1]]
            home = Path(words[3], "homes", row["tags"][-1].removeprefix("home-"))
            home.mkdir(parents=True, mode=0o711)
            (home / "text").write_text(row["text"])
        return Ended(0, "")

    def alone(self, *words: str, **__: Any) -> Ended:
        """Run systemd-run."""
        self.calls.append(words)
        return self.fails.get(words[-1], Ended(0, ""))

    def saved(self) -> list[str]:
        """Return the homes that are saved, in order."""
        return [call[-1] for call in self.calls if call[0] == "systemd-run"]

    def add(self, tags: list[str], text: str = "", cluster: str = "lab", hour: int = 1) -> None:
        """Add a backup."""
        moment, id_ = f"2026-11-26T{hour:02d}:00:{len(self.rows):02d}Z", f"{len(self.rows) + 1:08x}"
        self.rows.append({"id": id_, "hostname": cluster, "time": moment, "tags": tags, "text": text})


class Head:
    """A head node in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.target = root, Target(root)
        self.home = root / "export/shared/home"
        self.home.mkdir(parents=True)

    def write(self, path: str, size: int = 1) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))
        return file


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    made = Head(tmp_path)
    monkeypatch.setattr(safe_path, "root", str(tmp_path))
    monkeypatch.setattr(folders, "folders_in", lambda path: owners(tmp_path / path.lstrip("/")))
    for module in (homes, restic, restore_host):
        monkeypatch.setattr(module, "restic", made.target.restic)
    monkeypatch.setattr(homes, "attempt_bounded", made.target.alone)
    (tmp_path / "etc/tailrack/backup").mkdir(parents=True)
    (tmp_path / "etc/tailrack/backup/cluster").write_text("lab\n")
    homes.write_settings("/export/shared/home", 1, [".cache", "*.ckpt", "bob/data"])
    return made


def owners(path: Path) -> dict[str, tuple[int, int]]:
    """Return the folders in a folder, as if each had its own owner."""
    return {entry.name: (6001 + number, 7000) for number, entry in enumerate(sorted(path.iterdir()))}


def reason() -> str:
    return program.record(HOMES_RECORD).get("reason", "")


def test_restic_reads_each_home_alone_without_excluded_files(head: Head) -> None:
    head.write("ada/text")
    head.write("bob/data/x")
    assert program.main(["homes"]) == 0
    assert sorted(head.target.saved()) == ["/homes/ada", "/homes/bob"]
    call = next(call for call in head.target.calls if call[-1] == "/homes/ada")
    assert call[call.index("restic") :] == (
        *("restic", "/etc/tailrack/backup", "backup", "--host", "lab", "--tag", f"{homes.TAG},home-ada"),
        *("--exclude-file", "/etc/tailrack/backup/exclude", "/homes/ada"),
    )
    assert "--property=TemporaryFileSystem=/:ro" in call
    (bound,) = [word for word in call if word.startswith("--property=BindReadOnlyPaths=")]
    assert f" {head.home}/ada:/homes/ada" in bound
    assert "bob" not in bound
    assert (head.root / "etc/tailrack/backup/exclude").read_text().split() == [".cache", "*.ckpt", "bob/data"]
    assert program.record(HOMES_RECORD)["done"].isdecimal()
    assert reason() == ""


def test_above_the_limit_the_largest_home_is_left_out(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "_GB", 10**6)
    head.write("ada/runs/a.ckpt", 1_500_000)
    with head.write("ada/map").open("r+b") as file:
        file.truncate(2_000_000_000)
    head.write("bob/large", 1_500_000)
    assert program.main(["homes"]) == 1
    assert reason().startswith("LEFT OUT: bob (1.5 GB): the homes have 1.5 GB, more than tailrack:backup.homes.max_gb")
    assert head.target.saved() == ["/homes/ada"]


def test_a_home_that_fails_is_named_and_stops_no_other_one(head: Head) -> None:
    head.write("ada/text")
    head.write("bob/text")
    head.target.fails["/homes/ada"] = Ended(1, "", "Fatal: no space left")
    # Files may go while they are saved.
    head.target.fails["/homes/bob"] = Ended(3, "", "Warning: at least one source file could not be read")
    assert program.main(["homes"]) == 1
    assert reason() == "ada: Fatal: no space left"
    assert len(head.target.saved()) == 2
    del head.target.fails["/homes/ada"]
    head.target.fails["forget"] = Ended(11, "", "unable to create lock in backend: repository is already locked by 7")
    assert program.main(["homes"]) == 0
    head.home.chmod(0o777)
    assert program.main(["homes"]) == 1
    assert "root alone can change" in reason()


def account(name: str) -> Account:
    return Account(name, 6001 if name == "ada" else 6002, 7000)


@pytest.fixture
def full(head: Head) -> None:
    """A target with backups of two clusters."""
    for cluster, hour in (("lab", 1), ("lab", 3), ("other", 2)):
        head.target.add(["tailrack"], cluster=cluster, hour=hour)
    for hour, cluster in ((1, "lab"), (2, "lab"), (4, "lab"), (5, "other")):
        for name in ("ada", "bob"):
            head.target.add([homes.TAG, f"home-{name}"], f"{hour}", cluster, hour)


MADE = 1795654800  # 2026-11-26 01:00 UTC
ALL = (account("ada"), account("bob"))


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(("hour", "wanted"), [(1, "2"), (3, "4")])
def test_homes_of_that_backup_are_restored(head: Head, monkeypatch: pytest.MonkeyPatch, hour: int, wanted: str) -> None:
    given = list[tuple[str, ...]]()
    monkeypatch.setattr(restore_host, "run", lambda *words: given.append(words))
    restore_host.restore_homes("/keys", "lab", MADE + (hour - 1) * 3600 + 60, "/export/shared", ALL)
    for name in ("ada", "bob"):
        assert (head.home / name / "text").read_text() == wanted
        assert (head.home / name).stat().st_mode & 0o777 == 0o711
    assert not (head.home.parent / ".tailrack-homes").exists()
    # bob had another uid when the backup was made: in the folder, his home was the only one, the first.
    stage = head.home.parent / ".tailrack-homes/homes/bob"
    assert given == [("chown", "-hR", "--from=6001", "6002:7000", str(stage))]


@pytest.mark.usefixtures("full")
def test_existing_and_former_users_homes_are_not_restored(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.write("ada/text").write_text("newer")
    for _ in range(2):
        restore_host.restore_homes("/keys", "lab", MADE, "/export/shared", [account("ada")])
    assert (head.home / "ada" / "text").read_text() == "newer"
    assert [path.name for path in head.home.iterdir()] == ["ada"]
    assert "tailrack:users does not contain them: the homes of bob" in "".join(capsys.readouterr())


@pytest.mark.usefixtures("full")
def test_a_backup_that_cannot_be_read_is_reported_and_leaves_no_home(head: Head) -> None:
    head.target.fails["restore"] = Ended(1, "", "Fatal: pack 17 is damaged")
    with pytest.raises(Failure) as failure:
        restore_host.restore_homes("/keys", "lab", MADE, "/export/shared", ALL)
    assert failure.value.reason.startswith("cannot restore the home of ada from backup ")
    assert "damaged" in failure.value.reason
    assert "tailrack:backup.homes" in failure.value.remedy
    assert list(head.home.iterdir()) == []


def test_without_a_backup_of_homes_nothing_is_made(head: Head) -> None:
    restore_host.restore_homes("/keys", "lab", MADE, "/export/shared", ALL)
    assert list(head.home.parent.iterdir()) == [head.home]
