"""Scripts that lie on a machine: what a step reads there, and what becomes of one that is not whole."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.host import Connection, Machine
from components.steps import delivery
from components.steps.command_line import NO_SCRIPT, command, render_values
from components.steps.composition import Script
from components.steps.delivery import deliver
from components.steps.label import StepLabel
from engine.events import command_of
from tests.unit.configs import RawConfig
from tests.unit.recorded import Build, Recorded, record

SCRIPTS_FOLDER = Machine("a1", None).scripts_folder
SAYS = Script('#!/bin/bash\ndispatch() { echo "$1 $WORD"; }', frozenset({"WORD"}))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a login, with a script that a step of it runs."""
    path = tmp_path / SCRIPTS_FOLDER / SAYS.digest
    path.parent.mkdir(parents=True)
    path.write_text(SAYS.file, encoding="utf-8")
    return tmp_path


def run(home: Path, action: str = "up", word: str = "it's") -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", command(SAYS, SCRIPTS_FOLDER, "root", action)]
    return subprocess.run(words, input=render_values({"WORD": word}), cwd=home, capture_output=True, text=True)


@pytest.mark.parametrize("action", ["up", "down", "recall"])
def test_the_script_gets_the_values_and_the_action(home: Path, action: str) -> None:
    done = run(home, action)
    assert (done.stdout, done.stderr, done.returncode) == (f"{action} it's\n", "", 0)


def test_a_step_whose_values_are_cut_off_on_their_way_does_nothing(home: Path) -> None:
    sent = render_values({"WORD": "it's", "LINES": "one\ntwo"})
    words = ["sh", "-c", command(SAYS, SCRIPTS_FOLDER, "root", "up")]
    for length in range(len(sent) - 1):  # the last character is the newline after the last brace
        done = subprocess.run(words, input=sent[:length], cwd=home, capture_output=True, text=True)
        assert done.stdout == "", sent[:length]


@pytest.mark.parametrize("kept", [0, 10, len(SAYS.file) - 1])
def test_a_script_that_is_not_whole_does_not_run_and_is_named(home: Path, kept: int) -> None:
    path = home / SCRIPTS_FOLDER / SAYS.digest
    path.write_text(SAYS.file[:kept], encoding="utf-8")
    done = run(home)
    assert (done.stdout, done.returncode) == ("", NO_SCRIPT)
    assert done.stderr == f"~/{SCRIPTS_FOLDER}/{SAYS.digest}: not there, or not whole\n"


def test_a_script_that_is_not_there_or_another_one_does_not_run(home: Path) -> None:
    path = home / SCRIPTS_FOLDER / SAYS.digest
    path.write_text(SAYS.file + "echo more\n", encoding="utf-8")
    assert run(home).returncode == NO_SCRIPT
    path.unlink()
    done = run(home)
    assert (done.stdout, done.returncode) == ("", NO_SCRIPT)
    assert done.stderr.endswith(": not there, or not whole\n")


def test_a_failing_script_fails_the_step_with_its_own_status(home: Path) -> None:
    fails = Script("#!/bin/bash\ndispatch() { exit 7; }", frozenset())
    (home / SCRIPTS_FOLDER / fails.digest).write_text(fails.file, encoding="utf-8")
    words = ["sh", "-c", command(fails, SCRIPTS_FOLDER, "root", "up")]
    assert subprocess.run(words, input=render_values({}), cwd=home, capture_output=True, text=True).returncode == 7


class Parent(pulumi.ComponentResource):
    """Something to belong to."""

    def __init__(self) -> None:
        super().__init__("tailrack:test:Parent", "parent")


def delivered(repair: str = "", **changed: Any) -> Recorded:
    how: dict[str, Any] = {
        "host": "192.0.2.1",
        "port": 22,
        "user": "ops",
        "private_key": "k",
        "host_key": "ssh-ed25519 A",
    }
    machine = Machine("a1", Connection(**{**how, **changed}))
    return record(
        lambda: {
            "waits": len(deliver("a1-scripts", machine, [SAYS], label="a1: scripts", parent=Parent(), repair=repair))
        }
    )


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        ({"host": "192.0.2.2"}, True), ({"port": 23}, True), ({"host_key": "ssh-ed25519 B"}, True),
        ({"repair": "new disk"}, True), ({"private_key": "l"}, False), ({"user": "root"}, True),
    ],
)  # fmt: skip
def test_scripts_are_copied_again_to_another_machine_or_home_or_where_it_is_asked_for(
    change: dict[str, Any], anew: bool
) -> None:
    before, after = delivered(), delivered(**change)
    assert (before["a1-scripts"].inputs["triggers"] != after["a1-scripts"].inputs["triggers"]) == anew


def test_a_copy_says_what_it_is_and_on_which_machine() -> None:
    assert StepLabel.of(command_of(delivered()["a1-scripts"].inputs)) == StepLabel("a1-scripts", "a1", "a1: scripts")


def test_on_this_machine_nothing_is_copied() -> None:
    made = record(lambda: {"waits": deliver("x", Machine("a1", None), [SAYS], label="", parent=Parent(), repair="")})
    assert made.copies == []
    assert made.outputs == {"waits": []}


def test_what_is_damaged_on_the_way_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FOLDER", tmp_path)
    folders = []
    for _ in range(2):
        delivery.folder_of.cache_clear()
        folders.append(delivery.folder_of((SAYS,), "scripts"))
        assert [path.read_text(encoding="utf-8") for path in folders[-1].iterdir()] == [SAYS.file]
        (folders[-1] / SAYS.digest).write_text("half", encoding="utf-8")
    assert folders[0] == folders[1]
    delivery.folder_of.cache_clear()


@pytest.mark.parametrize("config", ["lab_config", "hosts_config"])
def test_every_step_on_another_machine_finds_its_script_there(
    build: Build, request: pytest.FixtureRequest, config: str
) -> None:
    stack = build(request.getfixturevalue(config))
    assert len(stack.remote) > 10
    for step in stack.remote:
        assert stack.whole(step.name).endswith('{ dispatch "$@" </dev/null; }\n'), step.name


def test_what_a_step_sends_is_its_values_alone(build: Build, lab_config: RawConfig) -> None:
    """The CLI writes the whole state twice a step: with the scripts in it, 64 hosts took 250 s and 9 GB."""
    stack = build(lab_config)
    sizes = {step.name: len(json.dumps(step.inputs)) for step in stack.remote if step.name.startswith("a1-")}
    assert len(sizes) == 4
    assert max(sizes.values()) < 4_000, sizes


@pytest.mark.parametrize("config", ["lab_config", "hosts_config"])
def test_a_script_does_nothing_and_reads_no_value_before_it_is_called(
    build: Build, request: pytest.FixtureRequest, config: str
) -> None:
    """Its values come after it."""
    stack = build(request.getfixturevalue(config))
    files = {file for copy in stack.copies for folder in copy.folders for file in folder.iterdir()}
    assert len(files) > 6
    for file in files:
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", file], env={"PATH": "/none"}, capture_output=True, text=True
        )
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_the_login_reads_its_script_and_root_reads_only_what_comes_through_the_pipe() -> None:
    words = command(Script("f() { :; }\n", frozenset()), "/home/admin/.tailrack", "admin", "up")
    _, _, as_root = words.partition("| sudo -n ")
    assert as_root.startswith("timeout ")
    assert "/home/admin" not in as_root
    assert "$f" not in as_root
    assert words.count("sudo") == 1
