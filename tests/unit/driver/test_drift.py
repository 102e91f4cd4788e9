"""`make drift` fails where a stack is not as its config says; a tailnet key that is due is nobody's doing."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from driver import __main__ as program
from engine.events import Event, Summary

URN = "urn:pulumi:prod::tailrack::{}::x"
KEY = Event(
    "start",
    "replace",
    URN.format("tailscale:index/tailnetKey:TailnetKey"),
    name="tailnet-key",
    type="tailscale:index/tailnetKey:TailnetKey",
)
STEP = Event("start", "update", URN.format("command:remote:Command"), name="b1-node", type="command:remote:Command")


def drift(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The status and the words of `make drift` where a preview tells these events."""
    summary = Summary()
    for event in events:
        summary.counts.update({event.operation: summary.counts[event.operation] + 1})

    def deployment(_arguments: Any, _progress: Any, _found: Any, keep: Any) -> Any:
        def preview(refresh: bool) -> Summary:
            assert refresh
            for event in events:
                keep(event)
            return summary

        return SimpleNamespace(preview=preview, allowed=())

    monkeypatch.setattr(program, "_deployment", deployment)
    monkeypatch.setattr(program, "_engine", lambda *_: None)
    said = io.StringIO()
    arguments = SimpleNamespace(refresh=True, comment=None, expect_no_changes=True, stack="prod")
    status = program._preview(arguments, Console(file=said, width=200))  # type: ignore[arg-type]
    return status, said.getvalue()


def test_a_key_that_is_due_alone_is_no_drift_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = drift([KEY], monkeypatch)
    assert status == 0
    assert "1 to replace" in said


@pytest.mark.parametrize("events", [[STEP], [KEY, STEP]])
def test_whatever_else_would_change_is_drift(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = drift(events, monkeypatch)
    assert status == 1
    assert "Stack prod is not as its config says" in said


def test_a_stack_as_it_should_be_has_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drift([], monkeypatch) == (0, "nothing to change, 0 unchanged.\n")
