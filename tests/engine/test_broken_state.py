"""A state that the CLI wrote itself and cannot read, and the runs that made it write one."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from cli.pulumi.processes import end_plugins
from cli.pulumi.workspace import CliError, Workspace
from cli.run_events import Event, Summary
from tests.engine.conftest import needs_cli
from tests.engine.played_hosts import PROJECT, play, write_config
from tests.engine.stack_under_test import Stack

PROGRAM = """
first = local.Command("first", create="echo 1")
local.Command("second", create="echo 2", opts=Options(depends_on=[first]))
"""


def break_state(folder: Path) -> None:
    """Do what the CLI does where `second` is skipped and `first` deleted: it also dies and keeps its lock."""
    (path,) = folder.rglob("stacks/**/dev.json")
    state = json.loads(path.read_text())
    resources = state["checkpoint"]["latest"]["resources"]
    kept = [resource for resource in resources if not resource["urn"].endswith("::first")]
    assert len(kept) == len(resources) - 1
    state["checkpoint"]["latest"]["resources"] = kept
    path.write_text(json.dumps(state))
    lock = path.parents[2] / "locks/organization/trial/dev/6e4c.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(json.dumps({"pid": 2**30, "username": "ada", "hostname": os.uname().nodename}))


@needs_cli
@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
def test_a_broken_state_is_repaired_or_named(stack: Stack, tmp_path: Path, deploy: Callable[..., Deployment]) -> None:
    stack.write(PROGRAM, {"any": "value"})
    events: list[Event] = []
    assert deploy("dev", events).up().ok
    for operation in ("preview", "up", "destroy"):
        break_state(tmp_path)
        summary = getattr(deploy("dev", events), operation)()
        assert summary.ok, (operation, summary.failures)
        assert operation == "destroy" or deploy("dev", events).up().ok

    assert deploy("dev", events).up().ok
    (path,) = tmp_path.rglob("stacks/**/dev.json")
    path.write_text(path.read_text()[:100])
    with pytest.raises(CliError, match=rf"the state of stack 'dev' is empty, cut off .* `cp {path}.bak {path}`"):
        deploy("dev", events).up()
    shutil.copy(f"{path}.bak", path)
    assert deploy("dev", events).up().ok


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("engine", [IN_PROCESS, pytest.param("cli", marks=needs_cli)])
def test_a_node_removed_while_anothers_step_fails_leaves_a_stack_for_either_config(engine: str, tmp_path: Path) -> None:
    found = Found(None, "") if engine == IN_PROCESS else find_engine("cli")
    with play(4) as played:

        def run(operation: str, *ports: int) -> Summary:
            addresses = [("127.0.0.1", port) for port in ports]
            config = write_config(tmp_path, addresses, played.private_key, played.host_key)
            deployment = Deployment(Workspace(PROJECT, "large", config, tmp_path / "state"), found, lambda event: None)
            summary: Summary = getattr(deployment, operation)()
            return summary

        head, beta0, gamma0, alpha1 = played.ports
        assert run("up", *played.ports).ok
        failed = run("up", head, beta0, 1)
        assert [failure.urn.rpartition("::")[2] for failure in failed.failures] == ["gamma0-scripts"]
        assert not [*tmp_path.rglob("locks/**/*.json")]
        for ports in ((head, beta0, gamma0, alpha1), (head, beta0, gamma0)):
            assert run("preview", *ports).ok
            assert run("up", *ports).ok


def test_plugins_of_a_cli_that_died_are_ended_and_nothing_else() -> None:
    def start(name: str, **variables: str) -> subprocess.Popen[bytes]:
        words = ["bash", "-c", f"exec -a {name} bash -c 'echo; read'"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env={**os.environ, **variables})
        assert process.stdout
        process.stdout.readline()
        return process

    plugin = start("/usr/bin/pulumi-resource-command", RUN="mine")
    others = [start("pulumi-resource-command", RUN="other"), start("slurmd", RUN="mine")]
    end_plugins("RUN=mine")
    assert plugin.wait(20) == -signal.SIGKILL
    for other in others:
        assert other.poll() is None
        other.communicate(b"\n", 20)
        assert other.returncode == 0
