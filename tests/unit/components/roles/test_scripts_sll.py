"""Role sll on the head node."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.sll.leave import leave
from tests.unit.shell import Shell, role_header, script_of

COMMAND = "/usr/local/bin/sll"


def test_leaving_removes_only_the_sll_of_the_program(shell: Shell) -> None:
    shell.stub("systemctl")
    assert shell.step(script_of("sll", "services"), role_header("sll")).returncode == 0
    assert shell.path(COMMAND).stat().st_mode & 0o777 == 0o755
    for ours in (True, False):
        if not ours:
            shell.write(COMMAND, "#!/bin/sh\nsomebody else's\n")
        with shell.here():
            leave(Step("a1", "tailrack-leave"))
        assert shell.path(COMMAND).exists() != ours
