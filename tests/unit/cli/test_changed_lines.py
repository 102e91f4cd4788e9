"""What a preview says of a step's inputs: the changed lines, and never a secret."""

import copy
from typing import Any

import pytest
from pulumi.runtime.rpc import UNKNOWN

from cli.preview.changed_lines import changed_lines
from components.roles.program import program
from components.steps.command_line import command, render_request
from tests.unit.configs import AUTH_KEY, LAB, MUNGE_KEY
from tests.unit.recorded import Build
from tests.unit.shell import code_script

MACHINE = "# the machine was replaced, or a repair is requested"
ACTIONS = {"create": "up", "delete": "down"}
ANOTHER = "# its script changes, because of the config or of another version of tailrack"


def stdin(**values: Any) -> dict[str, str]:
    return {"stdin": render_request("a1-node", "a1", "", "", values)}


def step(up: str = "pass", limit: int = 60, **values: Any) -> dict[str, Any]:
    """A step whose script lies on its machine."""
    script, folder = code_script(up), ".tailrack/scripts"
    commands = {key: command(script, program(), folder, action, limit) for key, action in ACTIONS.items()}
    return {**commands, **stdin(**values)}


def copy_of(digest: str = "a", path: str = "/here", place: str = ": a1-scripts a1 'a1: scripts'; 1") -> dict[str, Any]:
    return {"source": {"hash": digest, "path": path}, "remotePath": ".tailrack", "triggers": [place]}


def acl(port: int) -> dict[str, str]:
    return {"acl": f'{{\n  "grants": [\n    "tcp:{port}"\n  ]\n}}'}


def test_a_new_user_is_one_line_on_every_machine_and_no_secret_is_among_them(build: Build) -> None:
    raw = copy.deepcopy(LAB)
    before = build(raw)
    raw["users"].append({"name": "grace", "uid": 6002})
    after = build(raw)
    lines = [line for step in before.remote for line in changed_lines(step.inputs, after[step.name].inputs)]
    assert "+ grace 6002 6002" in lines
    assert [line for line in lines if line.startswith("- ")] == ["- local users = { [6001] = true }"]
    assert not any(secret in line for line in lines for secret in (AUTH_KEY, MUNGE_KEY))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (stdin(A="one"), stdin(A="two"), ["# a", "- one", "+ two"]),
        (stdin(A="it's\nso\nend"), stdin(A="it's\nnot\nend"), ["# a", "- so", "+ not"]),
        (stdin(), stdin(A="x"), ["# a", "+ x"]),
        # No request.
        ({"stdin": "A=one\n#!/bin/bash\n"}, stdin(A="one"), [ANOTHER]),
        (stdin(A="1"), {"stdin": UNKNOWN}, ["# with values that are unknown until earlier steps have run"]),
        (stdin(A="1"), {"stdin": "[secret]"}, ["# its input becomes, or was, a secret"]),
        ({"stdin": "[secret]"}, {"stdin": UNKNOWN}, ["# with a new secret"]),
        ({"stdin": "[secret]"}, {"stdin": "[secret]"}, ["# a value beside a secret, or the connection, changes"]),
        ({"connection": "[secret]"}, {"connection": {"host": "h"}}, ["# its connection changes"]),
        ({"triggers": [1]}, {"triggers": [2]}, ["# its triggers change"]),
        ({"triggers": [1]}, {"triggers": [2], "update": "x"}, ["# the measurement changes", "# its update changes"]),
        (acl(22), acl(23), ["# the tailnet's policy", '-     "tcp:22"', '+     "tcp:23"']),
        ({"same": 1}, {"same": 1}, []),
        # A script that lies on its machine
        (step(A="one"), step(A="two"), ["# a", "- one", "+ two"]),
        (step(), step("1"), [ANOTHER]),
        (step(A="1"), step("1", A="2"), [ANOTHER, "# a", "- 1", "+ 2"]),
        (step(), step(limit=90), ["# its create changes", "# its delete changes"]),
        (copy_of(), copy_of("b"), [ANOTHER]),
        (copy_of(), copy_of(place=": a1-scripts a1 'a1: scripts'; 2"), [MACHINE]),
        # A checkout that lies elsewhere copies nothing.
        (copy_of(), copy_of(path="/there", place=": a1-scripts a1 'a1: scripts'; 2"), [MACHINE]),
    ],
)
def test_a_change_is_shown_as_lines(before: dict[str, Any], after: dict[str, Any], said: list[str]) -> None:
    assert changed_lines(before, after) == said


def test_a_change_of_many_lines_is_cut_and_says_so() -> None:
    lines = changed_lines(stdin(A="\n".join(map(str, range(200)))), stdin(A="x"))
    assert len(lines) < 50
    assert lines[-1].startswith("# and ")
