"""A Ctrl-C before any step runs: nobody reads a traceback, and nobody is told to repair anything."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pulumi.automation import CommandError, CommandResult

from cli import commands, show_commands
from cli.pulumi.runner import CliRunner
from cli.pulumi.workspace import PROJECT, CliError
from cli.run_events import Event


def test_one_while_the_program_is_still_loading_just_ends_it(tmp_path: Path) -> None:
    # Children of tests in the background of a script ignore interrupts, as these do themselves.
    words = ["env", "--default-signal=INT", sys.executable, "-X", "importtime", "-m", "cli"]
    words += ["--state-dir", str(tmp_path), "outputs"]
    program = subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert program.stderr
    # One of the first packages that are loaded; hundreds come after it.
    assert any(" rich.console" in line for line in program.stderr)
    program.send_signal(signal.SIGINT)
    said = [line for line in program.stderr if not line.startswith("import time:")]
    assert program.wait(30) == -signal.SIGINT
    assert said == []


def test_an_interrupt_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(show_commands, "outputs", interrupted)
    assert commands.main(["--state-dir", str(tmp_path), "outputs"]) == 130
    assert capsys.readouterr().err == "tailrack: interrupted; run the same command again\n"


@pytest.mark.parametrize("touches_hosts", [True, False])
def test_one_before_the_clis_first_step_asks_for_no_repair(touches_hosts: bool) -> None:
    told = list[Event]()
    workspace = SimpleNamespace(stack="dev", folder="/", environment=dict)
    runner = CliRunner(cast(Any, workspace), cast(Any, None), told.append)

    def broken_off(**_: object) -> None:
        runner.stop()
        raise CommandError(CommandResult("", "error: update canceled\n", 255))

    with pytest.raises(CliError, match=r"^stopped before any step started: run the same command again$"):
        runner._run(broken_off, touches_hosts=touches_hosts)
    assert not told
