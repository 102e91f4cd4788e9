"""Which machines of an elastic pool must exist, decided from the states of placeholders alone."""

from typing import Any

import pytest

from cli.elastic.plan import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    REPLACE_SECONDS,
    Placeholder,
    Plan,
    after_failures,
    decide,
    next_attempt,
)
from cli.elastic.run import by_node
from cli.run_events import Failure, node_of
from components.roles.commands.tailrack.elastic import Attempts

NOW = 1_000_000.0


def node(flags: str, name: str = "e1", reason: str = "", by: str = "") -> Placeholder:
    return Placeholder(name, frozenset(["CLOUD", *flags.split()]), reason, by)


def plan(*nodes: Placeholder, **known: Any) -> Plan:
    values: dict[str, Any] = {"made": (), "complete": (), "kept": (), "failed": {}, **known}
    return decide(nodes, **values, now=NOW)


@pytest.mark.parametrize(
    "flags",
    ["IDLE", "ALLOCATED", "MIXED POWERING_UP NOT_RESPONDING", "IDLE POWERED_DOWN POWER_UP", "IDLE NOT_RESPONDING"],
)
def test_a_node_that_is_up_or_powers_up_has_a_machine(flags: str) -> None:
    assert plan(node(flags)) == Plan(frozenset({"e1"}))


@pytest.mark.parametrize("flags", ["IDLE POWERED_DOWN", "IDLE POWERING_DOWN", "IDLE POWER_DOWN", "DOWN POWERED_DOWN"])
def test_a_node_that_is_suspended_loses_its_machine_before_anything_else_happens(flags: str) -> None:
    assert plan(node(flags), made={"e1"}, complete={"e1"}) == Plan(frozenset())


def test_a_persons_drain_stays_and_kept_machines_come_without_a_job() -> None:
    assert plan(node("IDLE DRAIN POWERING_DOWN", reason="ask ada", by="root")) == Plan(frozenset())
    assert plan(node("IDLE POWERED_DOWN"), kept=["e1"]).power_up == ("e1",)
    assert plan(node("IDLE POWERED_DOWN", "e2"), kept=["e1"]).power_up == ()


def test_a_machine_that_slurm_suspended_and_wants_again_is_returned_first() -> None:
    awaited = node("ALLOCATED POWERING_UP NOT_RESPONDING")
    assert plan(awaited, made={"e1"}, complete={"e1"}).machines == frozenset()
    assert plan(awaited, made={"e1"}).machines == {"e1"}
    assert plan(awaited).machines == {"e1"}


def test_a_resume_timeout_is_an_attempt_that_failed_and_the_node_waits_for_the_next_one() -> None:
    late = node("DOWN POWERED_DOWN", reason="ResumeTimeout reached", by="slurm")
    first = plan(late)
    assert first.failed["e1"].times == 1
    assert first.down["e1"].startswith("tailrack: no machine: it did not run jobs within")
    assert plan(late, made={"e1"}) == Plan(frozenset()), "its machine is returned first"
    waits = node("DOWN POWERED_DOWN", reason=first.down["e1"], by="root")
    assert plan(waits, failed=first.failed) == Plan(frozenset(), failed=first.failed)
    over = {"e1": Attempts(1, NOW - 1, "late")}
    assert plan(waits, failed=over) == Plan(frozenset(), resume=("e1",), failed=over)
    assert plan(waits).resume == ("e1",), "a report that was lost does not keep a node down for ever"


def test_each_failure_waits_twice_as_long_and_a_machine_that_comes_ends_the_count() -> None:
    attempts, pauses = None, []
    for _ in range(8):
        attempts = next_attempt(attempts, "no capacity", NOW)
        pauses.append(attempts.until - NOW)
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    failed = {"e1": Attempts(3, NOW, "no capacity")}
    assert plan(node("ALLOCATED"), failed=failed).failed == {}
    assert plan(node("ALLOCATED POWERING_UP"), failed=failed).failed == failed


def test_only_nodes_that_a_job_still_waits_for_are_given_up() -> None:
    nodes = [node("ALLOCATED POWERING_UP"), node("ALLOCATED", "e2"), node("MIXED POWERING_UP", "e3")]
    given_up = after_failures(nodes, {"e1": "no capacity", "e2": "its services"}, {}, NOW)
    assert given_up.down.keys() == given_up.failed.keys() == {"e1"}
    assert "no capacity; next attempt after " in given_up.down["e1"]
    assert after_failures(nodes, {"": "the program"}, {}, NOW).down.keys() == {"e1", "e3"}


def test_a_machine_stays_until_its_job_ends() -> None:
    for state in ("ALLOCATED", "MIXED", "COMPLETING"):
        assert plan(node(f"{state} DRAIN POWER_DOWN"), made={"e1"}, complete={"e1"}).machines == {"e1"}
    assert plan(node("ALLOCATED POWERING_DOWN"), made={"e1"}, complete={"e1"}).machines == frozenset()


SICK = "health: GPU 0 has fallen off the bus"


def replaced(*nodes: Placeholder, last: float | None = 0.0, complete: tuple[str, ...] = ("e1", "e2")) -> list[str]:
    return list(plan(*nodes, made=set(complete), complete=set(complete), replaced=last).replace)


@pytest.mark.parametrize("reason", [SICK, "tailrack deep check: 40 % slower than its best"])
def test_a_machine_that_a_check_has_drained_is_replaced(reason: str) -> None:
    assert replaced(node("IDLE DRAIN", reason=reason, by="root")) == ["e1"]
    assert replaced(node("IDLE DRAIN", reason=reason, by="root"), last=None) == [], "only with replace_sick"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        *((flags, SICK) for flags in ("ALLOCATED DRAIN", "MIXED DRAIN", "IDLE COMPLETING DRAIN", "IDLE")),
        *(("IDLE DRAIN", reason) for reason in ("ada looks at the GPU", f"ada: {SICK}", "tailrack: registers anew")),
        ("IDLE DRAIN POWERING_DOWN", SICK),
    ],
)
def test_a_machine_with_a_job_or_drained_by_a_person_or_a_step_is_not_replaced(flags: str, reason: str) -> None:
    assert replaced(node(flags, reason=reason, by="root")) == []


def test_at_most_one_machine_of_a_pool_is_replaced_within_the_pause() -> None:
    both = node("IDLE DRAIN", reason=SICK, by="root"), node("IDLE DRAIN", "e2", SICK, "root")
    assert replaced(*both) == ["e1"]
    assert replaced(*both, last=NOW - REPLACE_SECONDS + 1) == []
    assert replaced(*both, last=NOW - REPLACE_SECONDS) == ["e1"]
    assert replaced(*both, complete=("e2",)) == ["e2"], "one that is still being set up is not judged"


def test_a_failure_belongs_to_the_node_that_its_resource_is_named_after() -> None:
    names = ["e1", "e11"]
    owners = [node_of(name, names) for name in ("e1", "e1-node", "e11-prepare", "e-pool", "burst-pool")]
    assert owners == ["e1", "e1", "e11", "", ""]
    urn = "urn:pulumi:burst::tailrack::tailrack:cluster:ComputeNode$command:remote:Command::e1-prepare"
    step = "tailrack: e1: step e1-prepare failed: no memory\n--- last lines\n---\nnext: read it"
    causes = by_node([Failure(urn, step), Failure(urn, "later"), Failure("", "no program")], names)
    assert causes == {"e1": "e1-prepare: e1: step e1-prepare failed: no memory", "": "no program"}
    not_ready = [Failure(urn, "lab node: create x\nlab: x is not ready\n")]
    assert by_node(not_ready, names) == {"e1": "e1-prepare: lab: x is not ready"}
