"""A state that the CLI wrote itself and cannot read: mended by the next run, whatever that is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.pulumi.deployment import Deployment
from engine.events import Event
from tests.engine.conftest import needs_cli
from tests.engine.stack_under_test import Stack

PROGRAM = """
first = local.Command("first", create="echo 1")
local.Command("second", create="echo 2", opts=Options(depends_on=[first]))
"""


def break_state(folder: Path) -> None:
    """Take away what `second` depends on, as the CLI does where `second` was skipped and `first` deleted."""
    (path,) = folder.rglob("stacks/**/dev.json")
    state = json.loads(path.read_text())
    resources = state["checkpoint"]["latest"]["resources"]
    kept = [resource for resource in resources if not resource["urn"].endswith("::first")]
    assert len(kept) == len(resources) - 1
    state["checkpoint"]["latest"]["resources"] = kept
    path.write_text(json.dumps(state))


@needs_cli
@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
@pytest.mark.parametrize("operation", ["up", "destroy"])
def test_what_depends_on_nothing_any_more_is_let_go_of(
    stack: Stack, tmp_path: Path, deploy: Callable[..., Deployment], operation: str
) -> None:
    stack.write(PROGRAM, {"any": "value"})
    events: list[Event] = []
    assert deploy("dev", events).up().ok
    break_state(tmp_path)
    summary = getattr(deploy("dev", events), operation)()
    assert summary.ok, summary.failures
