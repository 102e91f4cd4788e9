"""Aliases in the in-process engine. tests/engine/test_engine_parity.py compares what they do with the CLI."""

from __future__ import annotations

import json

import pytest
from pulumi.runtime.proto import resource_pb2

from engine import monitor
from tests.engine.stack_under_test import Stack

OLD = """
first = step("old", "echo one", delete="echo bye")
last = step("last", first.stdout.apply(lambda text: f"echo {text}"), delete="echo bye", depends_on=[first],
            triggers=[first.stdout], options=dict(deleted_with=first))
"""
NEW = OLD.replace('step("old", ', 'step("new", options=dict(aliases=[pulumi.Alias(name="old")]), script=')
URN = "urn:pulumi:dev::trial::command:remote:Command::"


@pytest.fixture(params=["specs", "URNs"])
def sent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the SDK sends of an alias: its parts, or the URN that it has made of them, as it did in the past."""
    specs = resource_pb2.ResourceMonitorFeature.Value("RESOURCE_MONITOR_FEATURE_ALIAS_SPECS")
    if request.param == "URNs":
        monkeypatch.setattr(monitor, "FEATURES", [feature for feature in monitor.FEATURES if feature != specs])
    return str(request.param)


@pytest.mark.usefixtures("sent")
def test_a_renamed_step_does_not_run_and_the_whole_state_has_its_new_name(stack: Stack) -> None:
    stack.write(OLD)
    assert stack.up().ok
    before = stack.engine_picture()
    stack.host.take()
    stack.write(NEW)
    for _ in range(2):
        summary = stack.up()
        assert summary.ok, summary.failures
        assert {name for name, count in summary.counts.items() if count} == {"same"}
    assert stack.host.take() == []
    after = stack.engine_picture()
    assert f"{URN}old" in str(before)
    assert json.loads(json.dumps(after).replace(f"{URN}new", f"{URN}old")) == before


@pytest.mark.usefixtures("sent")
def test_children_of_a_renamed_component_keep_their_resources(stack: Stack) -> None:
    component = """
class Rack(pulumi.ComponentResource):
    def __init__(self, name, type_="Rack", aliases=None):
        super().__init__(f"trial:rack:{type_}", name, None, Options(aliases=aliases))
        step(f"{name}-part", "echo part", delete="echo bye", options=dict(parent=self))
"""
    stack.write(component + 'Rack("rack")')
    assert stack.up().ok
    stack.host.take()
    stack.write(component + 'Rack("shelf", "Shelf", [pulumi.Alias(name="rack", type_="trial:rack:Rack")])')
    summary = stack.up()
    assert summary.ok, summary.failures
    assert stack.host.take() == []
    assert "rack-part" not in str(stack.engine_picture())


def test_a_name_of_its_own_comes_before_an_alias(stack: Stack) -> None:
    stack.write('step("old", "echo old", delete="echo bye old")\nstep("new", "echo new", delete="echo bye new")')
    assert stack.up().ok
    stack.host.take()
    stack.write('step("new", "echo new", delete="echo bye new", options=dict(aliases=[pulumi.Alias(name="old")]))')
    assert stack.up().ok
    assert [asked.command for asked in stack.host.take()] == ["echo bye old"]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            """
one = step("one", "echo one", options=dict(aliases=[pulumi.Alias(name="old")]))
step("two", "echo two", depends_on=[one], options=dict(aliases=[pulumi.Alias(name="old")]))
""",
            f"Duplicate resource alias '{URN}old' applied to resource with URN '{URN}two' conflicting with resource "
            f"with URN '{URN}one'",
        ),
        (
            """
old = step("old", "echo one", delete="echo bye")
step("new", "echo two", depends_on=[old], options=dict(aliases=[pulumi.Alias(name="old")]))
""",
            f"Duplicate resource alias '{URN}old' applied to resource with URN '{URN}new' conflicting with resource "
            f"with URN '{URN}old'",
        ),
        (
            """
new = step("new", "echo one", options=dict(aliases=[pulumi.Alias(name="old")]))
step("old", "echo two", depends_on=[new])
""",
            f"Duplicate resource URN '{URN}old' conflicting with alias on resource with URN '{URN}new'",
        ),
    ],
)
def test_two_resources_that_claim_one_name_are_refused_before_anything_runs(
    stack: Stack, program: str, message: str
) -> None:
    stack.write(OLD)
    assert stack.up().ok
    before = stack.engine_picture()
    stack.host.take()
    stack.write(program)
    summary = stack.up()
    assert message in summary.failures[0].message
    assert stack.host.take() == []
    assert stack.engine_picture() == before
