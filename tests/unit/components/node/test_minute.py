"""Tasks start once in their period, end with the release that declares them, and share one answer of Slurm."""

import json
import os
from dataclasses import asdict, replace
from itertools import pairwise

import pytest

from components.node import minute
from components.node.minute import Task, main, shared_answer, write_tasks
from tests.unit.shell import Shell

PROGRAM = "/usr/local/lib/tailrack/figures"
EVERY = Task("figures", (PROGRAM, "slurm"), limit=120, settings=("Nice=10",))
HOURLY = Task("clean", (PROGRAM,), seconds=3600)


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with a program for tasks."""
    shell.stubs("systemctl", "systemd-run")
    for path in (minute.PROGRAM, PROGRAM):
        shell.write(path, "")
    return shell


def write(machine: Shell, *tasks: Task) -> None:
    with machine.here():
        write_tasks("services", [asdict(task) for task in tasks])


def started(machine: Shell, *names: str) -> list[str]:
    """Run the program; return the units that it starts."""
    before = len(machine.calls)
    with machine.here():
        assert main(names) == 0
    calls = [call.split() for call in machine.calls[before:] if call.startswith("systemd-run")]
    return [word.removeprefix("--unit=") for call in calls for word in call if word.startswith("--unit=")]


def test_a_task_runs_in_a_unit_with_its_limit_and_settings(machine: Shell) -> None:
    write(machine, EVERY, Task("other", ("/nowhere",)))
    assert started(machine) == ["tailrack-figures.service"], "the other program is not here"
    call = machine.calls[-1]
    assert "--no-block -p Type=oneshot -p TimeoutStartSec=120 -p Nice=10" in call
    assert call.endswith(f"{PROGRAM} slurm")
    assert started(machine, "other") == []


def test_a_task_that_is_no_longer_declared_ends(machine: Shell) -> None:
    write(machine, EVERY)
    write(machine)
    assert "systemctl stop tailrack-figures.service" in machine.calls
    assert started(machine) == []


def test_a_task_with_sources_starts_only_after_one_of_them_has_changed(machine: Shell) -> None:
    write(machine, replace(EVERY, sources=("/etc/passwd", "/no/such/file"), target="/closed"))
    source = machine.write("etc/passwd", "")
    assert started(machine), "it has never run"
    machine.write("closed", "")
    os.utime(source, (0, 0))
    assert started(machine) == []
    os.utime(source)
    assert started(machine)


def test_a_long_period_begins_at_another_time_on_each_machine(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write(machine, HOURLY)
    runs = []
    for number in range(180):
        monkeypatch.setattr("components.node.minute.time.time", lambda at=60.0 * number: at)
        runs += [number] if started(machine) else []
    assert len(runs) == 3 or runs[0] == 0
    assert {later - sooner for sooner, later in pairwise(runs)} == {60}


def test_a_task_that_fails_to_start_stops_no_other(machine: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    machine.stub("systemd-run", 'case "$*" in *tailrack-a.service*) echo full >&2; exit 1 ;; esac')
    write(machine, Task("a", (PROGRAM,)), EVERY)
    with machine.here():
        assert main([]) == 1
    assert "--unit=tailrack-figures.service" in machine.calls[-1]
    assert capsys.readouterr().err.splitlines()[-1] == "tailrack-a.service does not start: full"


def test_a_task_that_runs_is_not_started_again(machine: Shell) -> None:
    machine.stub("systemd-run", 'echo "Unit tailrack-figures.service was already loaded" >&2; exit 1')
    write(machine, EVERY)
    assert started(machine) == ["tailrack-figures.service"]


def test_tasks_of_one_run_share_an_answer(machine: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask() -> list[str]:
        asked.append(0)
        return [json.dumps(len(asked))]

    answers = []
    with machine.here():
        for run in ("", "1", "1", "2"):
            monkeypatch.setenv(minute.RUN, run)
            answers += shared_answer(ask)
    assert answers == ["1", "2", "2", "3"]
