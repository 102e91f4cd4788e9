"""The CLI's home folder is the user's own, but for the log of every run."""

from pathlib import Path

import pytest

from cli.pulumi.workspace import Workspace, prepare_home


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    """The folder for the CLI, not there yet, and a user's own with a log-in, plugins and logs."""
    own = tmp_path / "own"
    (own / "plugins" / "resource-command-v1.2.1").mkdir(parents=True)
    (own / "logs").mkdir()
    (own / "credentials.json").write_text("{}", encoding="utf-8")
    return tmp_path / "made" / "home", own


def test_the_users_files_are_present_and_logs_cannot_be_written(homes: tuple[Path, Path]) -> None:
    folder, own = homes
    prepare_home(folder, own)
    assert (folder / "credentials.json").resolve() == own / "credentials.json"
    assert (folder / "plugins" / "resource-command-v1.2.1").is_dir()
    assert (folder / "logs").is_file()
    with pytest.raises(FileExistsError):
        (folder / "logs").mkdir()


def test_a_second_run_changes_nothing_and_drops_files_that_the_user_removed(homes: tuple[Path, Path]) -> None:
    folder, own = homes
    prepare_home(folder, own)
    before = {path.name: path.lstat().st_ino for path in folder.iterdir()}
    prepare_home(folder, own)
    assert {path.name: path.lstat().st_ino for path in folder.iterdir()} == before
    (own / "credentials.json").unlink()
    prepare_home(folder, own)
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "plugins"]


def test_a_home_that_is_named_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path, "x", tmp_path / "Pulumi.x.yaml", tmp_path / "root")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "named"))
    workspace.prepare_pulumi_home()
    assert "PULUMI_HOME" not in workspace.environment()
    assert not workspace.pulumi_home.exists()
    monkeypatch.delenv("PULUMI_HOME")
    workspace.prepare_pulumi_home()
    assert workspace.environment()["PULUMI_HOME"] == str(workspace.pulumi_home)
    assert (tmp_path / "user" / ".pulumi" / "plugins").is_dir()
