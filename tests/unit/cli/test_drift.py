"""`make drift` fails where a stack is not as its config says, and names what helps; a key that is due is no drift."""

import io
import subprocess
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli import change_commands, commands, open_stack
from cli.output.terminal import Terminal
from cli.pulumi.runner import CliRunner
from cli.pulumi.workspace import PROJECT
from cli.run_events import Event, Failure, Summary
from cli.stack_config.written_config import WrittenConfig
from stacks.config import parse
from tests.unit.configs import LAB

URN = "urn:pulumi:prod::tailrack::{}::x"
KEY_TYPE = "tailscale:index/tailnetKey:TailnetKey"
KEY = Event("start", "replace", URN.format(KEY_TYPE), name="tailnet-key", type=KEY_TYPE)
STEP = Event("start", "update", URN.format("command:remote:Command"), name="b1-node", type="command:remote:Command")


def drift(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The status and the words of `make drift` where a preview tells these events."""
    summary = Summary()
    for event in events:
        summary.counts.update({event.operation: summary.counts[event.operation] + 1})

    def deployment(_arguments: Any, _progress: Any, _found: Any, keep: Any) -> Any:
        def preview(_made: Any, refresh: bool) -> Summary:
            assert refresh
            for event in events:
                keep(event)
            return summary

        config = partial(parse, LAB, base_dir=PROJECT)
        return SimpleNamespace(preview=preview, written=WrittenConfig({}), made=list, outputs=dict, config=config)

    monkeypatch.setattr(open_stack, "open_deployment", deployment)
    monkeypatch.setattr(open_stack, "announced_engine", lambda *_: None)
    said = io.StringIO()
    arguments = SimpleNamespace(refresh=True, comment=None, expect_no_changes=True, stack="prod")
    status = change_commands.preview(arguments, Terminal(file=said, width=200))  # type: ignore[arg-type]
    return status, said.getvalue()


@pytest.mark.parametrize("events", [[STEP], [KEY, STEP]])
def test_any_other_change_is_drift(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = drift(events, monkeypatch)
    assert status == 1
    assert "Stack prod differs from its config. To apply the config: make up STACK=prod REFRESH=yes." in said


def test_the_command_of_drift_refreshes_before_its_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    asked: list[bool | None] = []

    def up(_checks: Any, refresh: bool) -> Summary:
        asked.append(refresh)
        return Summary(failures=[Failure("", "enough")])

    made = SimpleNamespace(up=up, written=WrittenConfig({}), in_process=False, stop=lambda: None)
    monkeypatch.setattr(open_stack, "open_deployment", lambda *_: made)
    monkeypatch.setattr(open_stack, "announced_engine", lambda *_: None)
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
