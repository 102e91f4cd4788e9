"""What the driver does about a run of the CLI that was killed, and about its errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pulumi.automation import CommandError, CommandResult

from driver.cli_runner import CliRunner
from driver.workspace import DriverError


def test_what_cannot_be_cleared_away_after_a_kill_is_said_in_the_clis_words_and_is_no_bug() -> None:
    def refresh(**_: Any) -> None:
        raise CommandError(CommandResult("", "error: the disk is full\n", 255))

    pending = SimpleNamespace(deployment={"pending_operations": [{}]})
    stack = SimpleNamespace(export_stack=lambda: pending, refresh=refresh)
    workspace = SimpleNamespace(in_backend=lambda pattern: [], stack="dev")
    runner = CliRunner(cast(Any, workspace), cast(Any, None), lambda event: None)
    with pytest.raises(DriverError, match=r"what a killed run left cannot be cleared away: .*the disk is full"):
        runner._clear_pending(cast(Any, stack))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "error: getting secrets manager: constructing secrets manager: incorrect passphrase",
            "the passphrase does not open the state of stack 'dev'; set PULUMI_CONFIG_PASSPHRASE_FILE (or",
        ),
        (
            "error: failed to decrypt: incorrect passphrase, please set PULUMI_CONFIG_PASSPHRASE to the correct",
            "the passphrase does not open the state of stack 'dev'; set",
        ),
        (
            "error: constructing secrets manager: passphrase must be set with PULUMI_CONFIG_PASSPHRASE or PULUMI_",
            "no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE",
        ),
        ("error: malformed state value", "what is secret in the state of stack 'dev' is damaged"),
        ("error: the disk is full", "error: the disk is full"),
    ],
)
def test_an_error_of_the_clis_own_is_told_with_the_stack_and_the_remedy(said: str, told: str) -> None:
    """Its words are those of its source, 3.260."""
    runner = CliRunner(cast(Any, SimpleNamespace(stack="dev")), cast(Any, None), lambda event: None)

    def fail(_: object) -> None:
        raise CommandError(CommandResult("", f"{said}\n", 255))

    (failure,) = runner._run(fail, touches_hosts=False).failures
    assert told in failure.message
