"""systemd reads its units anew where it has one as it was, and links for the next boot."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from components.node import systemd as units
from components.node.failure import Failure
from components.node.run import Ended
from components.node.step.step import Step
from components.node.systemd import enable, reload, reload_later
from tests.unit.shell import Shell


def calls(shell: Shell, change: Callable[[], object], systemd: str = "") -> list[str]:
    """What is asked of a played systemd that changes something."""
    shell.stub("systemctl", systemd)
    with shell.here():
        change()
    return [call for call in shell.calls if not call.startswith(("systemctl show", "systemctl is-enabled"))]


# systemd 252 does not know a file whose folder was not there when it last read its units.
@pytest.mark.parametrize(
    ("said", "known", "reloads"), [("no", "ours", 0), ("yes", "ours", 1), ("", "ours", 0), ("no", "", 1)]
)
def test_systemd_reloads_units_that_differ_from_its_own(shell: Shell, said: str, known: str, reloads: int) -> None:
    paths = [f"/etc/systemd/system/b.timer.d/{name}.conf" for name in ("other", "ours")]
    for path in paths:
        shell.write(path, "")
    systemd = f"[ $1 != show ] || echo no {said} {paths[0]} {paths[1] if known else ''}"
    assert calls(shell, partial(reload, "a.service", "b.timer"), systemd) == ["systemctl daemon-reload"] * reloads
    assert "systemctl show -P NeedDaemonReload -P DropInPaths a.service b.timer" in shell.calls


@pytest.mark.parametrize(("units", "said", "last"), [("ab", "no", 0), ("ab", "yes", 1), ("", "no", 1)])
def test_units_that_nothing_waits_for_are_read_once_at_the_end(shell: Shell, units: str, said: str, last: int) -> None:
    step = Step("a1", "a1-node")

    def change() -> None:
        reload_later(step, *units[:1])
        reload_later(step, *units[1:])
        shell.note("the end")
        for finish in step.later:
            finish()

    expected = ["the end", *["systemctl daemon-reload"] * last]
    assert calls(shell, change, f"[ $1 != show ] || printf {said}") == expected


def test_a_reload_that_a_killed_step_owed_is_done_by_the_next_step(shell: Shell) -> None:
    killed, following = Step("a1", "a1-head"), Step("a1", "a1-head")
    with shell.here():
        reload_later(killed)
        killed.at_end[0]()
        reload_later(following, "a.service")
    assert calls(shell, following.later[0]) == ["systemctl daemon-reload"]


ENABLE = "systemctl --root=/ enable -q a.service"


def test_a_unit_that_cannot_be_enabled_is_not_started_and_the_step_learns_of_it(shell: Shell) -> None:
    with pytest.raises(Failure):
        calls(shell, partial(enable, "a.service", now=True), "[ $2 != enable ]")
    assert shell.calls == [ENABLE]


def test_a_step_links_its_units_with_one_call_at_its_end(shell: Shell) -> None:
    def step() -> None:
        units.begin_step()
        enable("a.service")
        enable("b.timer", now=True)
        for _ in range(2):
            units.end_step()

    assert calls(shell, step) == ["systemctl start b.timer", f"{ENABLE} b.timer"]


LIVES = {"SubState": "running", "NRestarts": "0", "ActiveEnterTimestampMonotonic": "1"}


@pytest.mark.parametrize(
    ("states", "fails"),
    [
        ([LIVES], False),
        # Started just now, it ends and is started again.
        ([{"SubState": "running", "ActiveEnterTimestampMonotonic": "9" * 15}, {"SubState": "auto-restart"}], True),
        ([{"SubState": "failed"}], True),
        ([{"SubState": "auto-restart"}, LIVES], False),
        ([{"SubState": "auto-restart", "Restart": "no"}], False),
    ],
)
def test_a_service_that_does_not_stay_up_is_named_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, str]], fails: bool
) -> None:
    unit = "tailrack-job-reports.service"
    answers = iter([*states, *states[-1:] * 100])

    def attempt(*words: str, **_: Any) -> Ended:
        if words[0] == "journalctl":
            return Ended(0, "no perl here\n")
        if words[1] == "list-units":
            return Ended(0, f"{unit} loaded active running Reports\n")
        shown = {"Id": unit, "Restart": "always", "NRestarts": "3", "ActiveEnterTimestampMonotonic": "0"}
        shown |= next(answers)
        return Ended(0, "".join(f"{name}={value}\n" for name, value in shown.items()))

    monkeypatch.setattr(units, "attempt", attempt)
    monkeypatch.setattr(units, "_SETTLE_SECONDS", 0.5)
    if not fails:
        units.require_services("head")
        return
    with pytest.raises(Failure, match=f"{unit} on head ends again and again: no perl here") as failed:
        units.require_services("head")
    assert failed.value.remedy == f"see 'journalctl -u {unit}' on head, then run up again"
