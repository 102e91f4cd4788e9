"""Texts about machines that jobs bring: `tailrack why`, `tailrack nodes` and sll."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from components.roles.commands.sll.snapshot import snapshot
from components.roles.commands.tailrack import elastic
from components.roles.commands.tailrack.elastic import Status, at_limit, no_machine, read_status, read_statuses, renting
from components.roles.commands.tailrack.out_reason import why_out
from components.roles.commands.tailrack.wait_reason import why_it_waits
from components.roles.monitoring.monitoring.slurm_figures import node_state
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError

NOW = 1_800_000_000.0
STATUS = Status(
    "burst",
    ("e1", "e2"),
    NOW - 5,
    "at most 2 machines at once (tailrack:elastic.max)",
    {"e1": NOW - 190, "e2": NOW - 20},
    {"e1": "lambda site us-west-2", "e2": "lambda site us-west-2"},
)


def node(name: str, *flags: str, **values: object) -> Node:
    return Node(name, frozenset(["CLOUD", *flags]), **values)  # type: ignore[arg-type]


def test_a_job_that_gets_machines_shows_their_number_site_and_duration() -> None:
    assert renting(["e1", "e2"], [STATUS], NOW) == [
        "It waits for its machines: renting 2 of 2 at lambda site us-west-2, pool burst (e1, e2), for 3 min."
    ]
    assert renting(["a1"], [STATUS], NOW) == []
    (sentence,) = renting(["e1"], [Status("burst", ["e1"], NOW - 600)], NOW)
    assert sentence == "No one rents machines for pool burst: `make elastic STACK=burst` last ran 10 min ago."


def test_a_waiting_job_names_the_limit_once_no_placeholder_is_free() -> None:
    job = Job(1, "x", "ada", 6001, ("PENDING",), reason="Resources", node_count=1)
    taken = [node("e1", "ALLOCATED"), node("e2", "MIXED", "POWERING_UP", "NOT_RESPONDING")]
    assert at_limit([*taken[:1], node("e2", "IDLE", "POWERED_DOWN")], [STATUS]) == []
    why = why_it_waits(job, taken, lambda names: [names], [STATUS])
    assert why.sentences[-1] == (
        "Pool burst rents at most 2 machines at once (tailrack:elastic.max), and all of them are in use or out."
    )


def test_a_placeholder_without_a_machine_is_not_out() -> None:
    for flags, state, out in (
        (("IDLE", "POWERED_DOWN"), "idle, not rented", False),
        (("ALLOCATED", "POWERING_UP", "NOT_RESPONDING"), "allocated, being rented", False),
        (("IDLE", "POWERING_DOWN"), "idle, being returned", False),
        (("IDLE", "NOT_RESPONDING"), "idle, not responding", True),
        (("DOWN", "POWERED_DOWN"), "down, not rented", True),
    ):
        placeholder = node("e1", *flags)
        assert (placeholder.state, placeholder.out) == (state, out), flags
        assert (node_state(placeholder) == "down") == out, flags


def test_a_machine_that_did_not_come_says_why_and_when_the_next_attempt_is() -> None:
    reason = no_machine("e1-machine: no\ncapacity in us-west-2", NOW)
    assert (
        reason == "tailrack: no machine: e1-machine: no capacity in us-west-2; next attempt after 2027-01-15 08:00 UTC"
    )
    out = why_out(node("e1", "DOWN", "POWERED_DOWN", reason=reason, by="root"))
    assert out is not None
    assert (out.whose, out.reason) == ("tailrack", reason)
    assert out.next == "wait: `make elastic` of its pool tries again; to try now: tailrack resume e1"


def test_the_live_view_shows_the_wait_and_counts_only_machines_that_exist() -> None:
    job = Job(7, "x", "ada", 6001, ("RUNNING", "CONFIGURING"), nodes="e1", node_count=1, start=int(NOW))
    nodes = [node("e1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING"), node("e2", "IDLE", "POWERED_DOWN")]
    seen = snapshot([job], nodes, {}, NOW, [STATUS])
    assert (seen["nodes"], seen["out"]) == (1, [])
    (row,) = seen["jobs"]
    assert row["state"] == "configuring"
    assert row["why"].startswith("waits for its machines: renting 1 of 1 at lambda site us-west-2, pool burst (e1)")


def test_a_report_is_read_as_it_was_written_and_a_malformed_one_is_skipped(tmp_path: Path) -> None:
    for pool, text in (("a.b.burst", json.dumps(asdict(STATUS))), ("a.b.cut", '{"stack": "cut"'), ("odd", "[]")):
        (tmp_path / pool).mkdir()
        (tmp_path / pool / "status.json").write_text(text, encoding="utf-8")
    (status,) = read_statuses(str(tmp_path))
    assert replace(status, seen=STATUS.seen) == STATUS
    hostile = {**asdict(STATUS), "limit": "\x1b[2J", "places": {"e1": "a\nb"}}
    read = read_status(json.dumps(hostile), NOW)
    assert read is not None
    assert "\x1b" not in read.limit + read.places["e1"]
    assert "\n" not in read.places["e1"]
    for text in ("", "[]", '{"down": []}', '{"resume": 3}'):
        with pytest.raises(SlurmError, match="--apply takes a JSON object"):
            elastic.read_changes(text)
