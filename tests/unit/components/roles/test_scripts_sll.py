"""Role live on the head node: the command, and the reader's units."""

from __future__ import annotations

import pytest

from components.node.step.step import Step
from components.roles.sll.leave import leave
from tests.unit.shell import Shell, role_header, script_of

COMMAND, READER = "/usr/local/bin/sll", "/usr/local/lib/tailrack/live-reader"
UNITS = "/etc/systemd/system/tailrack-live.{}"


def up(shell: Shell, **values: bool) -> list[str]:
    """Run the phase; what systemd was told to begin and end in it."""
    shell.stub("systemctl", '[ "$1" != is-enabled ] || echo enabled')
    before = len(shell.calls)
    done = shell.step(script_of("sll", "services"), {**role_header("sll"), **values})
    assert done.returncode == 0, done.stderr
    return [call for call in shell.calls[before:] if call.startswith(("systemctl st", "systemctl disable"))]


def test_the_reader_is_there_to_be_started_and_a_second_run_leaves_it_alone(shell: Shell) -> None:
    assert up(shell) == [
        "systemctl stop tailrack-live.service tailrack-live.socket",
        "systemctl start tailrack-live.socket",
    ]
    assert shell.path(COMMAND).stat().st_mode & 0o777 == 0o755
    assert shell.path(READER).stat().st_mode & 0o777 == 0o755
    assert up(shell) == []


@pytest.mark.parametrize("changed", [READER, UNITS.format("socket"), UNITS.format("service")])
def test_a_reader_of_another_release_ends(shell: Shell, changed: str) -> None:
    up(shell)
    shell.write(changed, "of before")
    assert up(shell)[0] == "systemctl stop tailrack-live.service tailrack-live.socket"


def test_where_jobs_become_private_the_reader_goes_and_the_command_stays(shell: Shell) -> None:
    up(shell)
    assert up(shell, SLL_SHARED=False) == [
        "systemctl disable -q --now tailrack-live.socket",
        "systemctl disable -q --now tailrack-live.service",
    ]
    assert not any(shell.path(path).exists() for path in (READER, UNITS.format("socket"), UNITS.format("service")))
    assert shell.path(COMMAND).exists()


def test_nothing_of_it_stays_where_the_cluster_leaves_and_nobody_elses_sll_goes(shell: Shell) -> None:
    up(shell)
    with shell.here():
        leave(Step("a1", "tailrack-leave"))
    assert not any(shell.path(path).exists() for path in (COMMAND, READER, UNITS.format("socket")))
    shell.write(COMMAND, "#!/bin/sh\nsomebody else's\n")
    with shell.here():
        leave(Step("a1", "tailrack-leave"))
    assert shell.path(COMMAND).exists()
