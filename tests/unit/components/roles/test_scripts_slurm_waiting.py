"""Nodes that are older than a head node from 25.11 on get no job until they have its release."""

from __future__ import annotations

import pytest

from components.roles.slurm_release.wait_for_packages import hold_older_nodes, unreserve_node
from tests.unit.shell import Shell


@pytest.fixture
def controller(shell: Shell) -> Shell:
    """A played controller of the head node, a1 and b1 of 24.11 and c1 of 25.11, which keeps one reservation at most."""
    shell.stub("sinfo", "printf '%s\\n' 'head 24.11.5' 'a1 24.11.5' 'b1 24.11.5' 'b1 24.11.5' 'c1 25.11.7'")
    shell.stub(
        "scontrol",
        f"""held="{shell.root}/held"; case "$*" in
    "-o show reservation"*) [ ! -e "$held" ] || echo "ReservationName=tailrack-older Nodes=$(cat "$held") NodeCnt=1" ;;
    "show hostnames"*) tr , '\\n' <<<"$3" ;;
    create*) sed 's/.*nodes=\\([^ ]*\\).*/\\1/' <<<"$*" >"$held" ;;
    delete*) rm "$held" ;;
    *nodes-=*) sed -i "s/\\b${{3#*=}}\\b//; s/^,//; s/,$//; s/,,/,/" "$held" ;;
    update*) sed 's/.*nodes=//' <<<"$*" >"$held" ;;
esac""",
    )
    return shell


def held(shell: Shell) -> str | None:
    """The nodes that are kept from jobs; None where there is no reservation."""
    path = shell.path("held")
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def hold(shell: Shell, version: str = "25.11.7") -> bool:
    with shell.here():
        return hold_older_nodes("head", version)


def leave(shell: Shell, *nodes: str) -> None:
    with shell.here():
        for node in nodes:
            unreserve_node(node)


def test_nodes_that_are_older_are_held_before_the_controller_ends_and_the_head_node_is_not(controller: Shell) -> None:
    assert hold(controller)
    assert held(controller) == "a1,b1"
    (made,) = [asked for asked in controller.calls if asked.startswith("scontrol create")]
    assert made.endswith("nodes=a1,b1 starttime=now duration=infinite users=root flags=maint,ignore_jobs")


def test_a_step_that_was_cut_off_holds_the_same_nodes_again(controller: Shell) -> None:
    assert hold(controller)
    assert hold(controller)
    assert held(controller) == "a1,b1"


@pytest.mark.parametrize("release", ["24.11.6", "25.05.3"])
def test_a_release_with_a_compatible_srun_holds_no_nodes(controller: Shell, release: str) -> None:
    assert hold(controller, release)
    assert held(controller) is None


def test_another_number_of_the_same_release_holds_none(controller: Shell) -> None:
    controller.stub("sinfo", "printf '%s\\n' 'head 25.11.2' 'a1 25.11.2'")
    assert hold(controller)
    assert held(controller) is None


def test_each_node_goes_when_it_has_the_release_and_the_last_takes_the_reservation_with_it(controller: Shell) -> None:
    assert hold(controller)
    leave(controller, "c1", "a1")
    assert held(controller) == "b1"
    leave(controller, "b1", "b1")
    assert held(controller) is None


def test_a_controller_that_refuses_the_reservation_stops_the_change(controller: Shell) -> None:
    controller.stub("scontrol", "exit 1")
    assert not hold(controller)
