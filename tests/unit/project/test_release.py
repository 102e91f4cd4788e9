"""The release of tailrack: one number in all places, and no older program at a newer one's stack."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found
from cli.pulumi.workspace import CliError, Workspace
from stacks.release import RELEASE, is_newer
from tests.unit.configs import LAB
from tests.unit.recorded import Build

PROJECT = Path(__file__).parents[3]


def test_the_release_is_the_same_in_all_places_and_an_output_of_the_stack(build: Build) -> None:
    assert tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"] == RELEASE
    newest = re.search(r"^## (\S+)", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] == RELEASE
    assert build(LAB).outputs["release"] == RELEASE


def test_no_tag_is_newer_than_the_release() -> None:
    tags = subprocess.run(["git", "tag", "--list", "v*"], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert [tag for tag in tags.stdout.split() if is_newer(tag[1:])] == []


@pytest.mark.parametrize(
    ("release", "newer"),
    [(RELEASE, False), ("0.1.9", False), ("0.10.0", True), ("1", True), ("0.2.0.1", True), (None, False), ("x", False)],
)
def test_releases_are_compared_as_numbers(release: object, newer: bool) -> None:
    assert is_newer(release) == newer


@pytest.mark.parametrize("operation", ["up", "preview", "destroy"])
def test_a_newer_releases_state_is_rejected(operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "Pulumi.dev.yaml"
    config.write_text("config: {}\n")
    made = Deployment(Workspace(PROJECT, "dev", config, tmp_path), Found(None, IN_PROCESS), lambda event: None)
    outputs: dict[str, Any] = {"release": "99.0.0"}
    monkeypatch.setattr(made, "outputs", lambda: outputs)
    with pytest.raises(CliError, match=f"created by tailrack '99.0.0', and this is {RELEASE}"):
        getattr(made, operation)()
