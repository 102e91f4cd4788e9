"""A step's calls: what each gets, and what becomes of the others when one fails."""

import json
from typing import Any

import pytest

from components.node.step.values import read_values
from components.steps.composition import IS_JOINED, Script
from tests.unit.components.node.example_phases import Values
from tests.unit.shell import Shell, assert_fails, assert_ok

MODULE = "tests.unit.components.node.example_phases"
VALUES: dict[str, Any] = {"rows": [["a", 1], "b 2"], "text": 5, "count": 3, "on": True, "maybe": None}


def script(*calls: Any, action: str = "up", phases: tuple[str, ...] = ()) -> Script:
    return Script({action: calls}, frozenset(phases))


def python(name: str) -> tuple[str, str, str]:
    return ("python", MODULE, name)


def test_a_phase_gets_its_values_as_a_dataclass(shell: Shell) -> None:
    done = shell.step(script(python("tell"), phases=tuple(VALUES)), VALUES)
    told = "[Row(name='a', number=1), Row(name='b', number=2)] '5' 3 True None"
    assert json.loads(done.stdout) == {"told": told}, done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", "3"), ("count", True), ("on", 1), ("text", ["x"]), ("rows", [["a", "x"]]), ("rows", [["a", 1, 2]])],
)
def test_a_value_of_another_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"the value {name} is not "):
        read_values(Values, {**VALUES, name: value})
    with pytest.raises(ValueError, match=f"the step lacks the value {name}"):
        read_values(Values, {key: kept for key, kept in VALUES.items() if key != name})


def test_only_the_next_phase_sees_that_a_file_of_its_role_changed(shell: Shell) -> None:
    files = ("files", ("/etc/one", "0644", "root:root", "text", ""))
    done = shell.step(script(files, python("changed"), python("changed"), files, python("changed")), {})
    assert json.loads(done.stdout) == {"changed": [True, False, False]}, done.stderr
    assert shell.path("/etc/one").read_text() == "text\n"


def test_checks_report_all_problems_together(shell: Shell) -> None:
    calls = ("checks", python("refuse"), python("changed"), python("refuse"))
    done = shell.step(script(calls), {})
    reason = "tailrack: a1: step a1-step failed: Python refuses; also: Python refuses"
    assert done.stderr.splitlines()[0] == reason
    assert done.stderr.splitlines()[-1] == "next: change it; also: change it"


def test_a_phase_for_what_a_former_config_made_is_not_even_loaded_where_that_is_not(shell: Shell) -> None:
    assert_ok(shell.step(script(("where", ("/etc/made",), ("python", "no.such", "phase"))), {}))
    shell.write("/etc/made", "")
    assert_ok(shell.step(script(("where", ("/etc/other", "/etc/made"), python("go"))), {}))
    assert shell.path("/etc/went").read_text() == "went\n"


def test_an_unexpected_error_leaves_its_trace_in_the_log(shell: Shell) -> None:
    done = assert_fails(shell.step(script(python("crash")), {}), "RuntimeError: unexpected")
    assert done.stderr.splitlines()[-1].startswith("next: ssh to a1, read /var/log/tailrack/a1-step.log")


def test_leaving_goes_on_after_an_error(shell: Shell) -> None:
    plan = script(python("refuse"), python("crash"), python("go"), action="leave")
    request = json.dumps({"host": "a1", "values": {}})
    shell.write("/etc/tailrack/plans/leave.json", f"{plan.file}\n{request}")
    done = shell.kept("leave")
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
    assert shell.path("/etc/went").read_text() == "went\n"
    assert "Python refuses" in done.stderr


def test_a_join_runs_again_for_another_value_or_outside_the_tailnet_and_else_answers_as_before(shell: Shell) -> None:
    file = ("files", ("/etc/one", "0644", "root:root", "text", ""))

    def joins(last: str = "tell", state: str = "Running", ip: str = "1", repair: str = "", **values: Any) -> bool:
        shell.path("/etc/one").unlink(missing_ok=True)
        status = f"""{{"BackendState": "{state}", "TailscaleIPs": ["100.64.0.{ip}"]}}"""
        shell.stub("tailscale", f"""[ "$1" = status ] && echo '{status}' || echo 100.64.0.{ip}""")
        step = script(("join", ["text"], *IS_JOINED, file, python("address"), python(last)), phases=tuple(VALUES))
        done = shell.step(step, {**VALUES, **values}, repair=repair)
        assert done.returncode or json.loads(done.stdout)["tailnet_ip"] == f"100.64.0.{ip}", done.stderr
        return shell.path("/etc/one").exists()

    # The join does not read `count`; so does not a renewed key.
    assert [joins(), joins(count=4)] == [True, False]
    assert [joins(text=6), joins(text=6), joins(text=6, repair="1")] == [True, False, True]
    assert [joins(text=6, repair="1"), joins(text=6, repair="1", state="NeedsLogin")] == [False, True]
    assert joins(text=6, repair="1", ip="2"), "somebody logged the machine in again"
    assert joins("crash", text=7, repair="1")
    assert joins(text=6, repair="1"), "the last complete join was with these values, but another one began"
    assert_ok(shell.step(script(("end_tasks",)), {}))
    assert joins(text=6, repair="1"), "the machine began to leave"
