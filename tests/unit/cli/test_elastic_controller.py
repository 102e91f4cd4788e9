"""The controller of an elastic pool, with a played head node and played runs: what it runs, and what a kill leaves."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cli.elastic.controller import Answer, Controller
from cli.elastic.plan import Placeholder
from cli.pulumi.workspace import CliError
from cli.run_events import Made
from components.roles.commands.tailrack.elastic import Status

PLACES = {"e1": "lab site far", "e2": "lab site far"}
ELASTIC = {"pool": "a.b.burst", "places": PLACES, "limit": "at most 2", "kept": []}
FREE = "IDLE CLOUD POWERED_DOWN"
ASKED = "ALLOCATED CLOUD POWERING_UP NOT_RESPONDING"


class Cloud:
    """The head node, the stack and its machines, as the controller sees them.

    states    flags and reason of each placeholder
    broken    nodes whose machine fails
    """

    def __init__(self, folder: Path) -> None:
        self.states = {"e1": (FREE, ""), "e2": (FREE, "")}
        self.made: set[str] = set()
        self.incomplete: set[str] = set()
        self.broken: dict[str, str] = {}
        self.runs: list[list[str]] = []
        self.said: list[str] = []
        self.now = 1000.0
        self.cut_off = False
        self.workspace = self
        self.status: Any = None
        self.output = dict[str, Any](ELASTIC)
        self.folder, self.stack, self.written, self.elastic = folder, "burst", self, True

    # The deployment.
    def exclusive(self) -> Any:
        return nullcontext()

    def make(self, target: str) -> str:
        return f"make {target} STACK=burst"

    def outputs(self) -> dict[str, Any]:
        nodes = [{"name": name} for name in self.made - self.incomplete]
        return {"elastic": self.output, "cluster": {"head": "head", "nodes": nodes}}

    def resources(self) -> list[Made]:
        return [Made(f"urn:pulumi:burst::tailrack::command:remote:Command::{name}-prepare") for name in self.made]

    # The head node.
    def exchange(self, plan: Any = None, status: Any = None) -> Answer:
        for name, reason in plan.down.items() if plan else ():
            self.states[name] = ("DOWN CLOUD POWERING_DOWN", reason)
        for name in plan.replace if plan else ():
            self.states[name] = ("IDLE DRAIN CLOUD POWERING_DOWN", self.states[name][1])
        for name in plan.resume if plan else ():
            self.states[name] = (FREE, "")
        states = self.states.items()
        nodes = [Placeholder(name, frozenset(flags.split()), reason, "root") for name, (flags, reason) in states]
        self.status = status or self.status
        # Only the time of the last replacement outlives a controller here.
        return Answer(nodes, self.now, Status("", (), 0, replaced=self.status.replaced if self.status else 0))

    # A run.
    def start(self, machines: Sequence[str]) -> Any:
        self.runs.append(list(machines))
        self.machines, self.seconds, self.was_ended = frozenset(machines), 2.0, self.cut_off
        return self

    def ended(self) -> bool:
        return True

    def failures(self) -> dict[str, str] | None:
        if self.cut_off:
            return None
        came = self.machines - self.broken.keys()
        self.made = set(came) | (self.made & self.machines)
        self.incomplete -= came
        for name in came:
            if "POWERING_UP" in self.states[name][0]:
                self.states[name] = ("ALLOCATED CLOUD", "")
        return {name: why for name, why in self.broken.items() if name in self.machines}


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    made = Cloud(tmp_path)
    monkeypatch.setattr(Controller, "exchange", lambda _, *changes: made.exchange(*changes))
    monkeypatch.setattr("cli.elastic.controller.time.sleep", lambda _: None)
    return made


def controller(cloud: Cloud) -> Controller:
    class Deployment:
        written, workspace, make, outputs = cloud, cloud, cloud.make, cloud.outputs
        made = cloud.resources

    return Controller(Deployment(), cloud.start, cloud.said.append)  # type: ignore[arg-type]


def once(cloud: Cloud) -> None:
    controller(cloud).watch(once=True)


def test_a_machine_comes_when_it_is_asked_for_and_goes_when_slurm_suspends_it(cloud: Cloud) -> None:
    once(cloud)
    assert cloud.runs == []
    cloud.states["e2"] = (ASKED, "")
    once(cloud)
    assert cloud.runs == [["e2"]]
    cloud.states["e2"] = ("IDLE CLOUD POWERING_DOWN", "")
    once(cloud)
    assert cloud.runs == [["e2"], []]
    assert (cloud.made, cloud.states["e2"][0]) == (set(), FREE)


def test_a_machine_that_cannot_be_returned_is_an_error_and_no_endless_run(cloud: Cloud) -> None:
    cloud.made, cloud.failures = {"e1"}, dict  # type: ignore[method-assign]
    cloud.states["e1"] = ("IDLE CLOUD POWERING_DOWN", "")
    with pytest.raises(CliError, match="e1 could not be returned"):
        once(cloud)


def test_a_machine_that_fails_is_returned_and_tried_again_after_a_pause_that_doubles(cloud: Cloud) -> None:
    cloud.broken, works = {"e1": "no capacity"}, controller(cloud)
    cloud.states["e1"] = (ASKED, "")
    works.watch(once=True)
    assert cloud.runs == [["e1"]]
    assert "no machine: no capacity; next attempt after" in cloud.states["e1"][1]
    cloud.now += 119
    works.watch(once=True)
    assert "DOWN" in cloud.states["e1"][0]
    cloud.now += 2
    works.watch(once=True)
    assert cloud.states["e1"][0] == FREE
    cloud.states["e1"] = (ASKED, "")
    works.watch(once=True)
    cloud.now += 239
    works.watch(once=True)
    assert "DOWN" in cloud.states["e1"][0], "the second pause is twice as long"


def test_a_run_that_ends_well_without_the_machine_is_an_attempt_that_failed(cloud: Cloud) -> None:
    cloud.states["e1"], cloud.failures = (ASKED, ""), dict  # type: ignore[method-assign]
    once(cloud)
    assert cloud.runs == [["e1"]]
    assert "no machine: the run brought no machine; next attempt" in cloud.states["e1"][1]


def test_a_sick_machine_is_replaced_and_the_pause_outlives_the_controller(cloud: Cloud) -> None:
    sick = ("IDLE DRAIN CLOUD", "health: GPU 0 has fallen off the bus")
    cloud.output["replace_sick"], cloud.now = True, 1_000_000.0
    cloud.made, cloud.states["e1"] = {"e1"}, sick
    once(cloud)
    assert cloud.runs == [[]], "its machine goes back"
    assert cloud.states["e1"][0] == FREE, "and a job may ask for another"
    assert "e1: its machine goes back, because a check drained it: health: GPU 0 has fallen off the bus" in cloud.said
    cloud.made, cloud.states["e1"] = {"e1"}, sick
    cloud.now += 1799
    once(cloud)
    assert cloud.runs == [[]], "not so soon, also by a new controller"
    cloud.now += 1
    once(cloud)
    assert cloud.runs == [[], []]


@pytest.mark.parametrize("partly_in_the_state", [False, True])
def test_a_machine_of_a_run_that_was_cut_off_is_returned(cloud: Cloud, partly_in_the_state: bool) -> None:
    (cloud.folder / "renting").write_text("e1", encoding="utf-8")
    if partly_in_the_state:
        cloud.made, cloud.incomplete = {"e1"}, {"e1"}
    once(cloud)
    assert cloud.runs == [["e1"], []], "the first run takes the machine into the state"
    assert cloud.made == set()
    assert not (cloud.folder / "renting").exists()


def test_a_run_that_is_killed_is_an_error_that_leaves_its_names(cloud: Cloud) -> None:
    cloud.states["e1"], cloud.failures = (ASKED, ""), lambda: None  # type: ignore[method-assign]
    with pytest.raises(CliError, match="could not start, or was killed"):
        once(cloud)
    assert (cloud.folder / "renting").read_text(encoding="utf-8") == "e1"


def test_a_pool_that_is_not_up_or_not_elastic_is_refused_with_the_next_command(cloud: Cloud) -> None:
    cloud.elastic = False
    with pytest.raises(CliError, match="the config has no tailrack:elastic"):
        once(cloud)
    cloud.elastic, cloud.outputs = True, dict  # type: ignore[method-assign]
    with pytest.raises(CliError, match="run make up STACK=burst first"):
        once(cloud)
