"""The controller of an elastic pool with real runs of both engines and the played cloud; only Slurm is played."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.elastic.controller import Answer, Controller
from cli.elastic.plan import Placeholder
from cli.elastic.run import Run
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from tests.engine.conftest import Deploy
from tests.engine.run_pool import NODES
from tests.engine.stack_under_test import Stack
from tests.engine.test_rental import PROGRAM, ROOT
from tests.played_cloud.server import PlayedCloud
from tests.rented_doors import API_KEY, EAST, TYPE, played_cloud
from tests.unit.configs import PRIVATE_KEY

FREE, ASKED = "IDLE CLOUD POWERED_DOWN", "ALLOCATED CLOUD POWERING_UP NOT_RESPONDING"
# Besides the program of test_rental.py, the outputs that `make elastic` reads.
OUTPUTS = """
pulumi.export("elastic", {
    "pool": "o.trial.burst", "places": dict.fromkeys(["g1", "g2"], "lambda us-east-1"), "limit": "at most 2", "kept": []
})
pulumi.export("cluster", {"head": "head", "nodes": [{"name": name} for name in machines]})
"""
NAMES = "[name for name in os.environ.get('TAILRACK_RENTED', '').split(',') if name]"


class Slurm:
    """The placeholders in slurmctld: flags and reason by node."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(NODES, (FREE, ""))

    def exchange(self, plan: Any = None, status: Any = None) -> Answer:
        """Apply a plan, and return the states."""
        for name, reason in plan.down.items() if plan else ():
            self.states[name] = ("DOWN CLOUD POWERING_DOWN", reason)
        for name in plan.resume if plan else ():
            self.states[name] = (FREE, "")
        nodes = [Placeholder(name, frozenset(flags.split()), why, "root") for name, (flags, why) in self.states.items()]
        return Answer(nodes, 1000.0)


class RunWithSlurm(Run):
    """A run whose machines register in Slurm."""

    slurm: Slurm

    def failures(self) -> dict[str, str] | None:
        """Return the failures; the machines that came run their jobs."""
        failures = super().failures()
        for name in self.machines - failures.keys() if failures is not None else ():
            if "POWERING_UP" in self.slurm.states[name][0]:
                self.slurm.states[name] = ("ALLOCATED CLOUD", "")
        return failures


class Pool:
    """The pool's stack and the controller's runs. `kills`: the next run is killed as soon as a machine is rented."""

    def __init__(self, deployment: Callable[[], Deployment], command: Sequence[str], cloud: PlayedCloud) -> None:
        self.cloud, self.slurm, self.said, self.kills = cloud, Slurm(), list[str](), False
        self._deployment, self._command = deployment, command
        cloud.account.on_launch = self._on_launch

    def once(self) -> None:
        """Do what a controller does until nothing is left to do."""
        Controller(self._deployment(), self._start, self.said.append).watch(once=True)

    def rented(self) -> set[str]:
        return {machine.tags["tailrack:node"] for machine in self.cloud.account.bill()}

    def _start(self, machines: Sequence[str]) -> Run:
        file = self._deployment().workspace.folder / "rent.json"
        self._run = RunWithSlurm(["setsid", *self._command], machines, file)
        self._run.slurm = self.slurm
        return self._run

    def _on_launch(self, _: object) -> None:
        if self.kills:
            self.kills = False
            os.killpg(self._run._process.pid, signal.SIGKILL)


@pytest.fixture
def pool(
    request: pytest.FixtureRequest,
    stack: Stack,
    deploy: Deploy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pool]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (stack.folder / "key").write_text(PRIVATE_KEY)
    with played_cloud() as cloud:
        values = {"URL": cloud.url, "API_KEY": API_KEY, "TYPE": TYPE, "EAST": EAST}
        head = f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        head += "".join(f"{name} = {value!r}\n" for name, value in values.items())
        body = PROGRAM.replace("{LOST}", "{}").replace("{NODES}", NAMES) + OUTPUTS
        indented = "".join(f"    {line}\n" for line in body.splitlines())
        stack.write(f"{head}if pulumi.get_stack() == 'base':\n    step('head', 'true')\nelse:\n{indented}")
        (stack.folder / "Pulumi.base.yaml").write_text("config: {}\n")
        config = {
            "tailrack:kind": "pool",
            "tailrack:cluster": "organization/trial/base",
            "tailrack:elastic": {"max": 2},
        }
        (stack.folder / "Pulumi.burst.yaml").write_text(json.dumps({"config": config}))
        assert deploy("base", []).up().ok
        engine = request.node.callspec.params["deploy"]
        words = [sys.executable, "-m", "tests.engine.run_pool", str(stack.folder), str(tmp_path / "root"), engine]
        made = Pool(lambda: deploy("burst", []), words, cloud)
        monkeypatch.setattr(Controller, "exchange", lambda _, *changes: made.slurm.exchange(*changes))
        assert deploy("burst", []).up().ok
        yield made


def test_a_machine_comes_and_goes_and_a_killed_run_leaves_none(pool: Pool) -> None:
    slurm = pool.slurm
    slurm.states["g1"] = (ASKED, "")
    pool.once()
    assert pool.rented() == {"g1"}
    slurm.states |= {"g1": ("IDLE CLOUD", ""), "g2": (ASKED, "")}
    pool.kills = True
    with pytest.raises(CliError, match="could not start, or was killed"):
        pool.once()
    assert pool.rented() == {"g1", "g2"}
    # No job wants it any more.
    slurm.states |= {"g1": ("IDLE CLOUD POWERING_DOWN", ""), "g2": (FREE, "")}
    pool.once()
    assert pool.rented() == set()
    assert slurm.states == dict.fromkeys(NODES, (FREE, ""))


def test_without_capacity_the_node_is_given_up_and_others_still_come(pool: Pool) -> None:
    pool.cloud.account.capacity = {(TYPE, EAST): 1}
    pool.slurm.states |= {"g1": (ASKED, ""), "g2": (ASKED, "")}
    pool.once()
    (came,) = pool.rented()
    (other,) = set(NODES) - {came}
    state, reason = pool.slurm.states[other]
    assert "DOWN" in state.split()
    assert f"{TYPE} in {EAST}: no capacity" in reason
    # The machine that came runs jobs, and goes when it is idle.
    pool.slurm.states[came] = ("IDLE CLOUD POWERING_DOWN", "")
    pool.once()
    assert pool.rented() == set()
