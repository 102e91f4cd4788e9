"""`make drift` fails where a stack is not as its config says, and names what helps; a key that is due is no drift."""

import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli import commands
from cli.pulumi.runner import CliRunner
from cli.pulumi.workspace import PROJECT
from cli.run_events import Event, Failure, Summary
from stacks.config import parse
from tests.unit.cli.conftest import Play
from tests.unit.configs import LAB

URN = "urn:pulumi:prod::tailrack::{}::x"
KEY_TYPE = "tailscale:index/tailnetKey:TailnetKey"
KEY = Event("start", "replace", URN.format(KEY_TYPE), name="tailnet-key", type=KEY_TYPE)
STEP = Event("start", "update", URN.format("command:remote:Command"), name="b1-node", type="command:remote:Command")


@pytest.mark.parametrize(("events", "status"), [([STEP], 1), ([KEY, STEP], 1), ([KEY], 0)])
def test_any_change_but_that_of_a_key_is_drift(
    events: list[Event], status: int, play: Play, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = play(events, config=partial(parse, LAB, base_dir=PROJECT))
    words = ["--stack", "prod", "--state-dir", str(tmp_path), "preview", "--refresh", "--expect-no-changes"]
    assert commands.main(words) == status
    assert runs == [([], True)], "it refreshes"
    drift = "Stack prod differs from its config. To apply the config: make up STACK=prod REFRESH=yes."
    assert (drift in capsys.readouterr().err) == bool(status)


def test_the_command_of_drift_refreshes_before_its_checks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, play: Play
) -> None:
    asked: list[bool | None] = []

    def up(_checks: Any, refresh: bool) -> Summary:
        asked.append(refresh)
        return Summary(failures=[Failure("", "enough")])

    play(up=up)
    recipe = subprocess.check_output(["make", "-n", "up", "REFRESH=yes"], cwd=PROJECT, text=True)
    (line,) = [line for line in recipe.splitlines() if "cli up" in line]
    commands.main(["--state-dir", str(tmp_path), *line.partition("cli ")[2].split()])

    def run(**how: Any) -> None:
        asked.append(how["refresh"])

    stack = SimpleNamespace(up=run, preview=run, export_stack=lambda: SimpleNamespace(deployment={}))
    runner = CliRunner(cast(Any, SimpleNamespace(locks=lambda: [], stack="prod")), cast(Any, None), lambda event: None)
    monkeypatch.setattr(runner, "_stack", lambda **_: stack)
    monkeypatch.setattr(runner, "_places", dict)
    runner.preview(refresh=True)
    runner.up(refresh=True)
    runner.up()
    assert asked == [True, True, True, None]
