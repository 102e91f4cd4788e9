"""Fixtures of the engine's tests: a host, and a stack on it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from cli.pulumi.workspace import Workspace
from cli.run_events import Event
from tests.engine.ssh_host import SshHost, serve
from tests.engine.stack_under_test import Stack

PASSPHRASE = "open-sesame-for-the-tests"
Deploy = Callable[[str, list[Event]], Deployment]

needs_cli = pytest.mark.skipif(
    not (shutil.which("pulumi") and shutil.which("pulumi-resource-command")),
    reason="NOT COMPARED WITH PULUMI: there is no pulumi CLI with its command provider on PATH",
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    """A host that keeps what it is asked."""
    folder = tmp_path / "host"
    folder.mkdir()
    with serve(folder) as served:
        yield served


@pytest.fixture
def stack(tmp_path: Path, host: SshHost, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """An empty stack, its passphrase in a file."""
    secret = tmp_path / "passphrase"
    secret.write_text(PASSPHRASE)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(secret))
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    # Programs here are rewritten within a second; a stale cache of one would be the wrong program.
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return Stack(tmp_path / "project", host)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the driver a folder of the test for what the CLI keeps, and no passphrase of this machine."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")  # given back after the test: the driver sets it
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)


@pytest.fixture(params=[IN_PROCESS, pytest.param("cli", marks=needs_cli)])
def deploy(request: pytest.FixtureRequest, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Give stacks of one program and one workspace to the driver, under either engine: deploy(name, events).

    The config of a stack has to be there before: `stack.write` makes the one of `dev`.
    """
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")  # given back after the test: the driver sets it
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    stack.folder.mkdir()
    (stack.folder / ".venv").symlink_to(Path(__file__).parents[2] / ".venv")
    found = Found(None, "") if request.param == IN_PROCESS else find_engine("cli")

    def by_name(name: str, events: list[Event]) -> Deployment:
        workspace = Workspace(stack.folder, name, stack.folder / f"Pulumi.{name}.yaml", tmp_path / "root")
        return Deployment(workspace, found, events.append)

    return by_name
