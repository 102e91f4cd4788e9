"""A pool's stack whose cluster is gone, under either engine: what it had on the head node is left undone, and said."""

import pytest

from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import Event
from tests.engine.conftest import Deploy
from tests.engine.stack_under_test import Stack

Stacks = tuple[Deployment, Deployment, list[Event]]
# A head node that undoes nothing any more, as one that does not answer.
PROGRAM = """
if pulumi.get_stack() == "base":
    step("head", "true")
else:
    place = step("place", "true", delete="false")
    step("member", "true", delete="false", depends_on=[place])
    step("node", "true", depends_on=[place])
"""


@pytest.fixture
def stacks(deploy: Deploy, stack: Stack) -> Stacks:
    """A cluster's stack `base`, a pool `burst` of it, both up, and what the pool's tells."""
    stack.write(PROGRAM)
    (stack.folder / "Pulumi.base.yaml").write_text("config: {}\n")
    pool = "config: {tailrack:kind: pool, tailrack:cluster: organization/trial/base}\n"
    (stack.folder / "Pulumi.burst.yaml").write_text(pool)
    events: list[Event] = []
    base, burst = deploy("base", []), deploy("burst", events)
    assert base.up().ok
    assert burst.up().ok
    return base, burst, events


def test_a_pool_of_an_unknown_cluster_says_which_key_names_it(deploy: Deploy, stack: Stack) -> None:
    stack.write(PROGRAM)
    pool = "config: {tailrack:kind: pool, tailrack:cluster: organization/trial/bsae}\n"
    (stack.folder / "Pulumi.burst.yaml").write_text(pool)
    burst = deploy("burst", [])
    for operation in (burst.preview, burst.up):
        with pytest.raises(CliError, match=r"tailrack:cluster: there is no stack 'organization/trial/bsae'.*make up"):
            operation()


def test_either_engine_shows_the_programs_warnings_and_none_of_its_own(deploy: Deploy, stack: Stack) -> None:
    stack.write('pulumi.log.warn("careful")')
    (stack.folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    events: list[Event] = []
    assert deploy("dev", events).up().ok
    assert messages(events) == "careful"


def messages(events: list[Event]) -> str:
    return "\n".join(event.text for event in events if event.kind == "message")


def test_a_pool_without_its_clusters_stack_is_removed_and_names_the_remaining_work(stacks: Stacks) -> None:
    base, burst, events = stacks
    assert base.destroy().ok
    summary = burst.destroy()
    assert summary.ok, summary.failures
    assert "The cluster no longer exists (stack organization/trial/base does not exist)" in messages(events)
    assert "member" in messages(events)
    assert "place" in messages(events)
    assert "node" not in messages(events).replace("head node", "")


def test_while_the_clusters_stack_is_there_nothing_is_left_undone_unless_asked(stacks: Stacks) -> None:
    _, burst, events = stacks
    assert not burst.destroy().ok
    assert messages(events) == ""
    summary = burst.destroy(cluster_gone=True)
    assert summary.ok, summary.failures
    assert "The cluster no longer exists (as requested)" in messages(events)


def test_a_clusters_stack_knows_the_pools_of_its_workspace_that_are_there(stacks: Stacks) -> None:
    base, burst, _ = stacks
    assert base.pools() == ["burst"]
    assert burst.pools() == []
    assert burst.destroy(cluster_gone=True).ok
    assert base.pools() == []
