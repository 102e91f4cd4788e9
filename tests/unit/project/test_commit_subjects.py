"""The commit-msg hook of pre-commit accepts only subjects of the form in CONTRIBUTING.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.pulumi.workspace import PROJECT


def refused(message: str, tmp_path: Path) -> bool:
    """Run the hook as pre-commit does, without git."""
    config = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (hook,) = (hook for repo in config["repos"] for hook in repo["hooks"] if hook["id"] == "commit-subject")
    assert (hook["language"], hook["stages"]) == ("pygrep", ["commit-msg"])
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    command = [sys.executable, "-m", "pre_commit.languages.pygrep", *hook["args"], hook["entry"], str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode != 0


@pytest.mark.parametrize(
    "subject",
    [
        "munge: retry a key hand-over after a reboot",
        "cli, roles: rename the driver, phases, steps and files by what they do",
        "lab/image: bring up nodes with less memory",
        "docs: need no network for the first example",
        "a: " + "x" * 69,
        "Merge branch 'main' of elsewhere",
        'Revert "munge: retry a key hand-over"',
    ],
)
def test_an_area_and_an_imperative_are_accepted(subject: str, tmp_path: Path) -> None:
    for message in (f"{subject}\n", f"{subject}\n\nThe reason, in a text that is longer than a line.\n"):
        assert not refused(message, tmp_path)


@pytest.mark.parametrize(
    "subject",
    [
        "retry a key hand-over after a reboot",
        "Munge: retry a key hand-over",
        "munge: Retry a key hand-over",
        "munge:retry a key hand-over",
        "names: of what tailscaled tells a shell read one line a message",
        "munge: the key is retried",
        "munge: retried a key hand-over",
        "munge: retrying a key hand-over",
        "a: " + "x" * 70,
        "",
    ],
)
def test_any_other_subject_is_refused(subject: str, tmp_path: Path) -> None:
    for message in (subject, f"{subject}\n\nmunge: retry a key hand-over\n"):
        assert refused(message, tmp_path)
