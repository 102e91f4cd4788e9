"""A run that was killed leaves a lock in whichever backend the stack has; the next run takes it away."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pulumi.automation import CommandError, CommandResult

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import find_engine
from cli.pulumi.runner import CliRunner
from cli.pulumi.stack_locks import backend_folder
from cli.pulumi.workspace import PROJECT, CliError, Workspace
from cli.run_events import Event
from tests.engine.conftest import needs_cli
from tests.engine.stack_under_test import Stack
from tests.engine.test_engine_run import wait_for

BLOCKS = """
import pathlib
first = step("first", "touch begun; while ! test -e go; do sleep 0.05; done; echo first")
"""
UP = """
import sys
from pathlib import Path
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import find_engine
from cli.pulumi.workspace import Workspace
folder, root = map(Path, sys.argv[1:])
workspace = Workspace(folder, "dev", folder / "Pulumi.dev.yaml", root)
Deployment(workspace, find_engine("cli"), print).up()
"""


@pytest.fixture
def home(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that make is run in: the stack's, ready for the CLI."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    stack.write(BLOCKS, {"a": "b"})
    (stack.folder / ".venv").symlink_to(PROJECT / ".venv")
    monkeypatch.chdir(stack.folder)
    return stack.folder


@needs_cli
@pytest.mark.parametrize(
    "backend", ["", "file://{folder}/state", "file://./state", "file://state", "file://{folder}/state?no_tmp_dir=true"]
)
def test_the_lock_of_a_killed_run_is_cleared_in_every_spelling_of_a_folder(
    home: Path, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    (home / "state").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", backend.format(folder=home))
    root = tmp_path / "root"
    words = [sys.executable, "-c", UP, str(home), str(root)]
    run = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(PROJECT)}, start_new_session=True)
    wait_for((stack.host.folder / "begun").exists, "the step")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    kept = root / "backend" if not backend else home / "state"
    assert list(kept.glob(".pulumi/locks/organization/trial/dev/*.json"))
    (stack.host.folder / "go").touch()
    workspace = Workspace(home, "dev", home / "Pulumi.dev.yaml", root)
    deployment = Deployment(workspace, find_engine("cli"), list[Event]().append)
    summary = deployment.up()
    assert summary.ok, summary.failures
    assert not list(kept.glob(".pulumi/locks/organization/trial/dev/*.json"))
    # One that a power cut has left empty.
    (kept / ".pulumi/locks/organization/trial/dev/cut-off.json").touch()
    assert deployment.destroy().ok
    # What the CLI keeps in a folder of the user's is the user's.
    assert bool(list(kept.glob(".pulumi/history/trial/dev/*"))) == bool(backend)


@needs_cli
def test_destroy_keeps_other_backend(home: Path, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stack.host.folder / "go").touch()
    (home / "state").mkdir()

    def deployment(backend: str) -> Deployment:
        monkeypatch.setenv("PULUMI_BACKEND_URL", backend)
        workspace = Workspace(home, "dev", home / "Pulumi.dev.yaml", tmp_path / "root")
        return Deployment(workspace, find_engine("cli"), list[Event]().append)

    assert deployment("").up().ok
    assert deployment(f"file://{home}/state").up().ok
    assert deployment(f"file://{home}/state").destroy().ok
    assert [made.urn.rpartition("::")[2] for made in deployment("").made() if "Command" in made.urn] == ["first"]


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///a/b", "/a/b"),
        ("file:///a/b?no_tmp_dir=true", "/a/b"),
        ("file:///a/with%20space", "/a/with space"),
        ("file://~", "{home}"),
        ("file://~/x", "{home}/x"),
        ("file://./x", "{here}/x"),
        ("file://x/../y", "{here}/y"),
        ("s3://bucket", None),
        ("https://api.pulumi.com", None),
        ("", None),
    ],
)
def test_a_url_leads_to_a_folder(url: str, folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = folder and Path(folder.format(home=Path.home(), here=tmp_path))
    assert backend_folder(url) == (expected or None)


HERE = socket.gethostname()
TOLD = (
    "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete the "
    "lock file with `pulumi cancel`.\n  s3://bucket/.pulumi/locks/organization/tailrack/dev/6e4c.json: created by "
    "ada@{host} (pid {pid}) at 2026-11-26T08:00:00Z\n"
)
SERVICE = "error: [409] Conflict: Another update is currently in progress.\n"


def bucket_runner(tmp_path: Path) -> tuple[CliRunner, list[str]]:
    """A runner of a stack whose state is in a bucket, and the CLI's commands that it ran."""
    called = list[str]()

    def run(words: list[str], *_: Any) -> SimpleNamespace:
        called.append(words[0])
        return SimpleNamespace(stdout="")

    workspace = Workspace(PROJECT, "dev", tmp_path / "Pulumi.dev.yaml", tmp_path)
    return CliRunner(workspace, cast(Any, SimpleNamespace(run=run, command="pulumi")), print), called


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (TOLD.format(host=HERE, pid=2**30), ""),
        # Its number is another program's by now.
        (TOLD.format(host=HERE, pid=os.getpid()), ""),
        (TOLD.format(host="elsewhere", pid=4), r"a run of ada on elsewhere \(process 4, since 2026-11-26T08:00:00Z\)"),
        (SERVICE, "Pulumi's service reports another run on stack"),
    ],
)
def test_a_lock_is_cleared_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, said: str) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://bucket")
    runner, called = bucket_runner(tmp_path)
    answers = iter([CommandError(CommandResult("", told, 255)), None])

    def operation() -> None:
        if error := next(answers):
            raise error

    if not said:
        runner._run_repaired(operation)
        assert called == ["cancel"]
        return
    with pytest.raises(CliError, match=said) as refused:
        runner._run_repaired(operation)
    assert f"PULUMI_BACKEND_URL=s3://bucket pulumi --cwd {tmp_path}/stacks/dev cancel dev" in str(refused.value)
    assert called == []


def test_a_run_that_is_at_work_keeps_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    runner, called = bucket_runner(tmp_path)
    pulumi = subprocess.Popen(["bash", "-c", "exec -a pulumi tail -f /dev/null"])
    try:
        wait_for(
            lambda: Path(f"/proc/{pulumi.pid}/cmdline").read_bytes().startswith(b"pulumi\0"), "the process has its name"
        )
        file = tmp_path / "state/.pulumi/locks/organization/tailrack/dev/6e4c.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"pid": pulumi.pid, "username": "ada", "hostname": HERE}))
        with pytest.raises(CliError, match=f"process {pulumi.pid} of this machine .* is still working on stack 'dev'"):
            runner._clear_pending(cast(Any, None))
    finally:
        pulumi.kill()
        pulumi.wait()
    assert called == []
