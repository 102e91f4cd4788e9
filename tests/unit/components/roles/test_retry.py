"""Jobs that start again without the node that failed: which ones, and without which node."""

import json
from dataclasses import replace
from typing import Any

import pytest

from components.roles.slurm.slurm import retry
from components.roles.slurm.slurm.retry import failed_node
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node

JOB = Job(
    7, "train", "ada", 6001, ("FAILED",), partition="all", nodes="a[1-2]", node_count=2, start=1000,
    comment="retry", requeues=True, batch=True, excluded="b9", status=1,
)  # fmt: skip
SICK = {"flags": frozenset({"IDLE", "DRAIN"}), "reason": "health: GPU 0: lost", "by": "root", "since": 1500}


def nodes(**changed: dict[str, Any]) -> dict[str, Node]:
    """Four idle nodes of one site, some of them changed."""
    free = Node("", frozenset({"IDLE"}), partitions=frozenset({"all"}), available=frozenset({"site-a"}))
    return {name: replace(free, name=name, **changed.get(name, {})) for name in ("a1", "a2", "a3", "a4")}


def test_a_job_loses_the_node_that_was_taken_out_while_it_ran() -> None:
    assert failed_node(JOB, nodes(a2=SICK)) == "a2"
    assert failed_node(JOB, {name: node for name, node in nodes().items() if name != "a2"}) == "a2"
    by_slurm = {**SICK, "reason": "Not responding", "by": "slurm", "flags": frozenset({"DOWN"})}
    assert failed_node(replace(JOB, flags=("NODE_FAIL",)), nodes(a1=by_slurm)) == "a1"
    requeued = replace(JOB, flags=("PENDING",), nodes="", restarts=1, failed_node="a1")
    assert failed_node(requeued, nodes(a1=by_slurm)) == "a1"


@pytest.mark.parametrize(
    ("changed", "node"),
    [
        ({"comment": "may-wait"}, SICK),
        ({"batch": False}, SICK),
        ({"requeues": False}, SICK),
        ({"node_count": 1, "nodes": "a2"}, SICK),
        ({"needs": "a2"}, SICK),
        ({"flags": ("TIMEOUT",)}, SICK),
        ({"flags": ("FAILED", "COMPLETING")}, SICK),
        ({"node_count": 4, "nodes": "a[1-4]"}, SICK),  # only three are left
        ({"admin_comment": json.dumps({"without": "b1 b2"})}, SICK),  # twice already
        ({"start": 1600}, SICK),
        ({}, {**SICK, "reason": "new disk"}),  # a person's drain
        ({}, {}),
    ],
)
def test_other_jobs_stay_as_they_ended(changed: dict[str, Any], node: dict[str, Any]) -> None:
    assert failed_node(replace(JOB, **changed), nodes(a2=node)) == ""


def test_a_job_is_excluded_from_its_node_before_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(retry, "jobs_and_nodes", lambda: ([JOB], list(nodes(a2=SICK).values()), {}))

    def call(*words: str, **changes: str) -> bool:
        calls.append(" ".join([*words, *(f"{name}={value}" for name, value in changes.items())]))
        return True

    monkeypatch.setattr(slurm, "update", call)
    monkeypatch.setattr(slurm, "requeue", call)
    assert retry.main([]) == 0
    hold, change, release = calls
    assert (hold, release) == ("7 requeuehold", "7 release")
    assert change.startswith("jobid=7 excnodelist=b9,a2 admincomment=")
    assert change.endswith(" starttime=now limit=10")
    assert '"cause":"node a2 failed (health: GPU 0: lost)' in change
    assert '"without":"a2"' in change
    # A change that fails leaves no job held.
    monkeypatch.setattr(slurm, "update", lambda **_: False)
    assert retry.main([]) == 0
    assert calls[3:] == [hold, release]
