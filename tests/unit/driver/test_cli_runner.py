"""What the driver does about a run of the CLI that was killed."""

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
    workspace = SimpleNamespace(in_backend=lambda pattern: [])
    runner = CliRunner(cast(Any, workspace), cast(Any, None), lambda event: None)
    with pytest.raises(DriverError, match=r"what a killed run left cannot be cleared away: .*the disk is full"):
        runner._clear_pending(cast(Any, stack))
