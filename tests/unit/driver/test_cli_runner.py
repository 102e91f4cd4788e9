"""What the driver does about a run of the CLI that was killed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pulumi.automation import CommandError, CommandResult

from driver.cli_runner import CliRunner, _made
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


@pytest.mark.parametrize("whole", [True, False])
def test_the_connection_of_a_step_comes_out_of_an_export_whatever_of_it_is_secret(whole: bool) -> None:
    def secret(value: Any) -> dict[str, str]:
        return {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps(value)}

    way: dict[str, Any] = {
        "host": "192.0.2.1",
        "port": 22.0,
        "privateKey": "key",
        "proxy": {"host": "192.0.2.2", "privateKey": "other"},
    }
    hidden = {**way, "privateKey": secret("key"), "proxy": {**way["proxy"], "privateKey": secret("other")}}
    exported = {"urn": "urn:x", "inputs": {"create": "true", "connection": secret(way) if whole else hidden}}
    assert _made(exported).connection == way
    assert _made({"urn": "urn:x", "inputs": {"create": "true"}}).connection == {}
