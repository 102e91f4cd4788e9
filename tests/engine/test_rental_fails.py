"""A machine that no cloud has, under both engines: it is named, and steps of other machines go on."""

from __future__ import annotations

import pytest

from cli.pulumi.deployment import Deployment
from tests.engine import test_rental
from tests.engine.test_rental import Trial
from tests.engine.test_rental import trial as trial
from tests.rented_doors import EAST, TYPE

# The second machine's steps are a command that waits: a program that ends early would not run it.
MORE = """
from pulumi_command import local

from components.steps import composition
from components.steps.delivery import deliver
from components.steps.results import NOTHING
from components.steps.step import Step

g1, script = machines["g1"], composition.single("stacks.sites.rented.host_key")
host = g1.as_host(RentedNode("g1", "east", (), None, False, True, offers=((TYPE, EAST),)))
scripts = deliver("g1-scripts", host, (script,), label="g1: copy setup scripts", parent=g1, repair="")
Step("g1-check", host, script, {}, label="g1: check", answer=NOTHING, parent=g1, depends_on=scripts)
local.Command("g2-step", create="sleep 3", triggers=[machines["g2"].facts["id"]])
local.Command("g2-later", create=machines["g2"].facts.apply(lambda facts: "echo " + facts["id"]))
"""
PROGRAM = test_rental.PROGRAM.replace(
    "offers=((TYPE, EAST),))\n    machines", "offers=((TYPE, EAST if name == 'g2' else 'us-west-9'),))\n    machines"
).replace("pulumi.export(", f"{MORE}\npulumi.export(")


def test_others_go_on_and_no_secret_is_shown(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_rental, "PROGRAM", PROGRAM)
    monkeypatch.setattr(Deployment, "_with_fewer", lambda _self, summary: summary)
    trial.cloud.account.capacity = {(TYPE, EAST): 1}
    summary = trial.deployment().up()
    assert not summary.ok
    done = {event.name for event in trial.events if event.kind == "done"}
    assert {"g2-machine", "g2-step", "g2-later"} <= done
    assert [failure.urn.rpartition("::")[2] for failure in summary.failures] == ["g1-machine"]
    assert "PRIVATE KEY" not in repr(trial.events) + repr(summary)
