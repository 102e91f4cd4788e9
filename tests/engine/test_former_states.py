"""A stack that an earlier version of tailrack made, taken to this one, under either engine and on played hosts.

The earlier version runs as itself, from this repository's history. A clone without its commit skips this and says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from components.steps.former_names import current_name
from tests.engine.conftest import needs_cli
from tests.engine.played_hosts import PROJECT, play, write_config
from tests.engine.test_preview import Trial

# Release 0.1.0 is the last commit whose pyproject.toml has that version.
VERSIONS = {
    "release 0.1.0": "820da350b509549f17f4ba4686b3d36d2edd02e3",
    "before steps were renamed": "28bcefef1ca08ce31ba805f2c70dda9d06d80f7c",
}
UP = """
import sys
from pathlib import Path
from driver.deployment import Deployment
from driver.find_engine import Found, find_engine
from driver.workspace import Workspace
folder, engine = Path(sys.argv[1]), sys.argv[2]
workspace = Workspace(Path.cwd(), "large", folder / "Pulumi.large.yaml", folder / "state")
found = find_engine("cli") if engine == "cli" else Found(None, "")
summary = Deployment(workspace, found, lambda event: None).up()
assert summary.ok, summary.failures
"""


def checkout(commit: str, folder: Path) -> Path:
    """Write an earlier version into a folder, with this one's Python environment."""
    git = ["git", "-C", str(PROJECT)]
    if subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True).returncode:
        pytest.skip(f"STATES OF EARLIER VERSIONS ARE NOT TESTED: this clone has no commit {commit}")
    archive = subprocess.run([*git, "archive", commit], capture_output=True, check=True)
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    (folder / ".venv").symlink_to(PROJECT / ".venv")
    return folder


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Which earlier version."""
    return str(request.param)


@pytest.fixture(params=[IN_PROCESS, pytest.param("cli", marks=needs_cli)])
def trial(
    request: pytest.FixtureRequest, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Trial]:
    """A cluster of three hosts that the earlier version has made."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")  # given back after the test: the driver sets it
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("PULUMI_HOME", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    earlier = checkout(VERSIONS[version], tmp_path / "earlier")
    with play(3) as played:
        addresses = [("127.0.0.1", port) for port in played.ports]
        config = write_config(tmp_path, addresses, played.private_key, played.host_key)
        words = [sys.executable, "-c", UP, str(tmp_path), "" if request.param == IN_PROCESS else "cli"]
        subprocess.run(words, cwd=earlier, env={**os.environ, "PYTHONPATH": str(earlier)}, check=True)
        found = Found(None, "") if request.param == IN_PROCESS else find_engine("cli")
        yield Trial(tmp_path, config, found, played)


def operations(trial: Trial) -> dict[str, set[str]]:
    """What the last run did, by operation; of a measurement nothing."""
    done: dict[str, set[str]] = {}
    for event in trial.events:
        if event.kind == "start" and event.operation != "same" and not event.name.startswith("validate-"):
            assert event.name not in done.setdefault(event.operation, set()), f"{event.name} runs twice"
            done[event.operation].add(event.name)
    return done


def names(trial: Trial) -> set[str]:
    """The resources in the state, as the engine has them there."""
    return {each.urn.rpartition("::")[2] for each in trial.deployment()._runner.made()}


def test_a_stack_of_an_earlier_version_is_brought_up_without_making_or_undoing_a_step_again(
    trial: Trial,
) -> None:
    before = names(trial)
    renamed = {name for name in before if current_name(name) != name}
    assert renamed == {f"{node}-gate" for node in ("alpha0", "beta0", "gamma0")} | {"beta0-member", "gamma0-member"}

    plan, text = trial.preview()
    foretold = operations(trial)
    assert foretold.keys() == {"update"}, text
    assert {current_name(name) for name in renamed} <= foretold["update"]
    assert not plan.machines
    assert not plan.measured, "what machines answered is known by the steps' earlier names"
    assert {work.action for work in plan.perhaps} <= {"join the tailnet, munge key", "measure cross-site"}

    trial.up()
    assert operations(trial) == foretold
    # Earlier versions read their own outputs by a resource, which the program no longer has.
    assert names(trial) == {current_name(name) for name in before} - {"last-run"}
    assert trial.up() == {}, "nothing is left to do"


def test_a_node_that_goes_with_the_new_version_is_undone_by_its_step_of_the_earlier_name(trial: Trial) -> None:
    trial.edit(lambda sections: sections["tailrack:sites"].pop())
    text = trial.preview()[1]
    assert "**Machines:** `gamma0` removed." in text
    assert "# jobs on gamma0 may continue for " in text
    trial.up()
    assert operations(trial)["delete"] >= {"gamma0-gate", "gamma0-member"}
    assert not [name for name in names(trial) if name.startswith("gamma0") or current_name(name) != name]
