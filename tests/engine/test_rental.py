"""Rented machines as resources, under both engines: rented, unchanged, lost, killed in the middle, and returned."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.pulumi.deployment import Deployment
from cli.run_events import Event, Summary
from tests.chance import dice
from tests.engine.conftest import Deploy
from tests.engine.stack_under_test import Stack
from tests.played_cloud.server import PlayedCloud
from tests.rented_doors import API_KEY, EAST, TYPE, played_cloud
from tests.unit.configs import PRIVATE_KEY

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os
from stacks.sites.lambda_cloud import LambdaSite
from stacks.sites.rented.machines import CloudAccount, RentedMachine
from stacks.sites.rented.model import RentedNode
from stacks.sites.rented.present import Rental

values = dict(
    name="east", kind="lambda", region=EAST, image="", user="ubuntu", private_key_file=pathlib.Path("key"),
    base_url=URL, boot_minutes=1, tags={}, fewer="fail",
)
site = LambdaSite.model_construct(**values)
rental = Rental(API_KEY, {LOST})
account = CloudAccount(site, rental)
machines = {}
for name in {NODES}:
    node = RentedNode(False, True, name=name, site="east", offers=((TYPE, EAST),))
    machines[name] = RentedMachine(site, node, "dev", account, rental)
pulumi.export("rented", {name: machine.facts for name, machine in machines.items()})
"""


class Trial:
    """A stack of rented machines."""

    def __init__(self, stack: Stack, cloud: PlayedCloud, deploy: Deploy) -> None:
        self.cloud, self._stack, self._deploy = cloud, stack, deploy
        self.nodes, self.lost = ["g1", "g2"], dict[str, str]()
        self.events: list[Event] = []

    def deployment(self) -> Deployment:
        values = {"URL": self.cloud.url, "API_KEY": API_KEY, "TYPE": TYPE, "EAST": EAST}
        head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        program = PROGRAM.replace("{LOST}", repr(self.lost)).replace("{NODES}", repr(self.nodes))
        self._stack.write(head + program, {"x": "y"})
        self.events.clear()
        return self._deploy("dev", self.events)

    def up(self) -> Summary:
        summary = self.deployment().up()
        assert summary.ok, [failure.message for failure in summary.failures]
        return summary

    def killed_up(self, until: Callable[[threading.Event], None]) -> None:
        """Start an `up` in a process group, and kill the group when `until` says so."""
        deployment, ready = self.deployment(), threading.Event()
        until(ready)

        def run() -> None:
            os.setsid()
            deployment.up()

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        assert ready.wait(60)
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()

    def touched(self) -> dict[str, str]:
        done = [event for event in self.events if event.kind == "done" and event.operation != "same"]
        return {event.name: event.operation for event in done if event.type.startswith("command:")}

    def rented(self) -> dict[str, str]:
        return {machine.tags["tailrack:node"]: machine.id for machine in self.cloud.account.bill()}


@pytest.fixture
def trial(stack: Stack, deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (stack.folder / "key").write_text(PRIVATE_KEY)
    with played_cloud() as cloud:
        yield Trial(stack, cloud, deploy)


def test_machines_are_rented_and_stay_and_are_returned(trial: Trial) -> None:
    trial.up()
    rented = trial.rented()
    assert rented.keys() == {"g1", "g2"}
    outputs: dict[str, Any] = trial.deployment().outputs()
    assert {name: facts["id"] for name, facts in outputs["rented"].items()} == rented
    trial.up()
    assert trial.touched() == {}
    assert trial.deployment().destroy().ok
    assert trial.cloud.account.bill() == []
    assert trial.cloud.account.keys == {}


def test_a_lost_machine_is_rented_again_once_and_that_of_a_node_that_leaves_is_returned(trial: Trial) -> None:
    trial.up()
    lost = trial.rented()["g1"]
    trial.cloud.account.end(lost, taken_back=True)
    trial.lost = {"g1": lost}
    trial.up()
    assert trial.touched() == {"g1-machine": "update"}
    first = trial.rented()["g1"]
    assert first != lost
    trial.up()
    assert trial.touched() == {}
    trial.nodes = ["g1"]
    trial.up()
    assert trial.rented() == {"g1": first}
    trial.deployment().destroy()
    assert trial.cloud.account.bill() == []


def test_no_api_key_is_in_plain_in_a_state_or_an_event(trial: Trial, tmp_path: Path) -> None:
    trial.up()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "__main__.py"]
    assert files
    assert [path for path in files if API_KEY.encode() in path.read_bytes()] == []
    assert API_KEY not in repr(trial.events)
    trial.deployment().destroy()


@pytest.mark.parametrize("next_up", [True, False])
def test_a_machine_rented_by_a_killed_up_is_used_by_the_next_or_returned(trial: Trial, next_up: bool) -> None:
    def until(ready: threading.Event) -> None:
        trial.cloud.account.on_launch = lambda machine: ready.set()

    trial.nodes = ["g1"]
    trial.killed_up(until)
    trial.cloud.account.on_launch = lambda machine: None
    killed = trial.rented()
    assert killed.keys() == {"g1"}
    if next_up:
        trial.up()
        assert trial.rented() == killed
    else:
        time.sleep(1)
    assert trial.deployment().destroy().ok
    assert trial.cloud.account.bill() == []


@pytest.mark.proof
def test_ten_kills_at_random_moments_leave_nothing_rented(trial: Trial) -> None:
    chance = dice("rental")
    for _ in range(10):
        trial.killed_up(lambda ready: threading.Timer(chance.uniform(0.5, 4.0), ready.set).start())
        if chance.random() < 0.5:
            trial.up()
            assert trial.rented().keys() == {"g1", "g2"}
        assert len(trial.cloud.account.bill()) <= 2
    assert trial.deployment().destroy().ok
    assert trial.cloud.account.bill() == []
