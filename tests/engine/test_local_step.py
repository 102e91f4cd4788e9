"""Steps on the machine that the program runs on, under either engine. They run a fake that touches one folder alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.run_events import Event
from tests.engine.conftest import Deploy
from tests.engine.stack_under_test import STEPS, Stack

PROGRAM = """
script = Script({{"up": (), "down": ()}}, phases=frozenset({{"WORD", "KEY"}}), texts={{"BODY": {body!r}}})
door, node = Machine("door", {way}), Node("door")
made = Step(
    "door-head", door, script, {{"WORD": {word!r}}}, label="door: a step", parent=node, limit_seconds={limit},
    answer=Answer({{"said": str}}),
    secrets={{"KEY": pulumi.Output.secret("nobody-may-see")}},
    depends_on=deliver("door-scripts", door, [script], label="door: scripts", parent=node, repair=""),
)
pulumi.export("said", made.result["said"])
"""


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a local step of an account that is not root asks sudo")


@pytest.fixture
def log(stack: Stack) -> Path:
    """The log of the fake: a line for each step."""
    return stack.folder / "installed" / "log"


@pytest.fixture
def write(stack: Stack) -> Callable[..., None]:
    """Write the program of one step."""

    def program(word: str, way: str = "None", body: str = "", limit: int = 60) -> None:
        text = STEPS + PROGRAM.format(word=word, way=way, body=body, limit=limit)
        stack.write(text, {"unused": 1})

    return program


def test_a_local_step_works_and_is_undone(deploy: Deploy, write: Callable[..., None], log: Path, stack: Stack) -> None:
    write("one")
    deployment = deploy("dev", [])
    assert deployment.up().ok
    assert deployment.outputs() == {"said": "one 2"}
    again = deployment.up().counts
    assert [again[name] for name in ("create", "update", "replace", "delete")] == [0, 0, 0, 0]
    write("two")
    assert deployment.up().counts["update"] == 1
    assert deployment.destroy().ok
    assert log.read_text().splitlines() == ["up here: one", "up here: two", "down here: two"]
    # Python sets LC_CTYPE itself.
    expected = {"HOME", "PATH", "LC_CTYPE"} | {name for name in os.environ if name.startswith("SUDO_")}
    assert {*log.with_suffix(".env").read_text().split()} <= expected
    assert log.with_suffix(".pwd").read_text() == "/\n"


def test_secrets_stay_hidden_and_its_limit_holds(deploy: Deploy, write: Callable[..., None], tmp_path: Path) -> None:
    events: list[Event] = []
    write("one", body="import time; time.sleep(60)", limit=1)
    deployment = deploy("dev", events)
    (failure,) = deployment.up().failures
    assert "status 124" in failure.message
    assert "nobody-may-see" not in failure.message + json.dumps([event.text + event.command for event in events])
    write("one")
    assert deployment.up().ok
    kept = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if b"nobody-may-see" in path.read_bytes()] == []


def test_a_head_node_that_becomes_local_repeats_steps(deploy: Deploy, write: Callable[..., None], log: Path) -> None:
    write("one", way="way")
    deployment = deploy("dev", [])
    assert deployment.up().ok
    write("one")
    summary = deployment.up()
    assert (summary.counts["create"], summary.counts["delete"]) == (1, 2)  # the scripts lie on no other machine now
    # The old step undoes nothing then (remember_how in components/node/step/work.py).
    assert log.read_text().splitlines() == ["up: one", "up here: one", "down: one"]
