"""A step's calls, in bash and in Python: what each gets, and what becomes of the others when one fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.node.step.values import read_values
from components.steps.composition import Script
from tests.unit.components.node.example_phases import Row, Values
from tests.unit.shell import Shell, bash_script

MODULE = "tests.unit.components.node.example_phases"
VALUES: dict[str, Any] = {"ROWS": [["a", 1], "b 2"], "TEXT": 5, "COUNT": 3, "ON": True, "MAYBE": None}


def script(*calls: Any, bash: str = "", action: str = "up", phases: tuple[str, ...] = ()) -> Script:
    return Script({action: calls}, bash_script(bash).bash, frozenset(), frozenset(phases))


def python(name: str) -> tuple[str, str, str]:
    return ("python", MODULE, name)


def test_a_phase_gets_its_values_as_a_dataclass(shell: Shell) -> None:
    done = shell.step(script(python("tell"), phases=tuple(VALUES)), VALUES)
    told = "[Row(name='a', number=1), Row(name='b', number=2)] '5' 3 True None"
    assert json.loads(done.stdout) == {"told": told}, done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("COUNT", "3"), ("COUNT", True), ("ON", 1), ("TEXT", ["x"]), ("ROWS", [["a", "x"]]), ("ROWS", [["a", 1, 2]])],
)
def test_a_value_of_another_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"the value {name} is not "):
        read_values(Values, {**VALUES, name: value})
    with pytest.raises(ValueError, match=f"the step lacks the value {name}"):
        read_values(Values, {key: kept for key, kept in VALUES.items() if key != name})


def test_rows_may_be_lines_of_a_text() -> None:
    assert read_values(Values, {**VALUES, "ROWS": "a 1\nb 2"}).rows == [Row("a", 1), Row("b", 2)]


def test_bash_and_python_take_turns_and_bash_keeps_its_variables(shell: Shell) -> None:
    bash = 'one() { KEPT=7; result one 1; }; two() { result two "$KEPT"; }'
    calls = (("bash", "one"), python("tell"), ("bash", "two"))
    done = shell.step(script(*calls, bash=bash, phases=tuple(VALUES)), VALUES)
    assert list(json.loads(done.stdout).items())[-2:] == [("one", 1), ("two", 7)], done.stderr


def test_a_lock_is_taken_once(shell: Shell) -> None:
    done = shell.step(script(python("lock"), python("lock")), {}, lock="")
    assert json.loads(done.stdout) == {"locked_before": True}, done.stderr


def test_the_next_phase_alone_is_told_that_a_file_of_its_role_changed(shell: Shell) -> None:
    files = ("files", ("/etc/one", "0644", "root:root", "text"))
    bash = 'one() { result "$1" "$(json_string "$CHANGED")"; }'
    calls = (files, ("bash", "one", "first"), ("bash", "one", "second"), files, python("changed"))
    done = shell.step(script(*calls, bash=bash), {})
    assert json.loads(done.stdout) == {"changed": False, "first": "yes", "second": ""}, done.stderr
    assert shell.path("/etc/one").read_text() == "text\n"


def test_all_problems_of_checks_are_told_together_whatever_they_are_written_in(shell: Shell) -> None:
    bash = """one() { fail 'bash refuses' 'change that'; }
two() { result two 2; }
run_checks() { for each; do "$each"; done; }"""
    calls = ("checks", ("bash", "one"), python("refuse"), ("bash", "two"), python("refuse"))
    done = shell.step(script(calls, bash=bash), {})
    assert done.stderr.splitlines()[0] == (
        "tailrack: a1: step a1-step failed: bash refuses; also: Python refuses; also: Python refuses"
    )
    assert done.stderr.splitlines()[-1] == "next: change that; also: change it; also: change it"


def test_an_unexpected_error_leaves_its_trace_in_the_log(shell: Shell) -> None:
    done = shell.step(script(python("crash")), {})
    assert done.returncode == 1
    assert "RuntimeError: unexpected" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: ssh to a1, read /var/log/tailrack/a1-step.log")


def test_leaving_goes_on_after_an_error_in_bash_or_python(shell: Shell) -> None:
    bash = f"one() {{ exit 3; }}; two() {{ echo went >>{shell.root}/went; }}"
    calls = (("bash", "one"), python("refuse"), ("bash", "two"), python("crash"), ("bash", "two"))
    plan = script(*calls, bash=bash, action="leave")
    request = json.dumps({"host": "a1", "values": {}})
    shell.write("/etc/tailrack/plans/leave.json", f"{plan.file}\n{request}")
    done = shell.kept("leave")
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
    assert shell.path("/went").read_text() == "went\nwent\n"
    assert "Python refuses" in done.stderr
