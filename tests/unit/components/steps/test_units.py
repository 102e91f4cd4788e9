"""scripts/base.sh: systemd reads its units anew where it has one as it was, and links for the next boot."""

from __future__ import annotations

import pytest

from tests.unit.shell import Shell

VALUES = {"HOST_NAME": "a1", "STEP_NAME": "test"}


def calls(shell: Shell, words: str, systemd: str = "") -> list[str]:
    """What is asked of a played systemd that changes something."""
    shell.stub("systemctl", systemd)
    done = shell.call(words, VALUES)
    assert done.returncode == 0, done.stderr
    return [call for call in shell.calls if not call.startswith(("systemctl show", "systemctl is-enabled"))]


@pytest.mark.parametrize(
    ("said", "changed"), [("no\\nno\\n", []), ("no\\nyes\\n", ["systemctl daemon-reload"]), ("", [])]
)
def test_units_are_read_anew_where_one_of_them_is_another_than_systemd_has(
    shell: Shell, said: str, changed: list[str]
) -> None:
    assert calls(shell, "reload_units a.service b.timer", f"[ $1 != show ] || printf '{said}'") == changed
    assert "systemctl show -P NeedDaemonReload -P DropInPaths a.service b.timer" in shell.calls


# As systemd 252 does where the folder was not there when it last read its units.
@pytest.mark.parametrize(
    ("known", "changed"), [("other.conf ours.conf", []), ("other.conf", ["systemctl daemon-reload"])]
)
def test_units_are_read_anew_where_systemd_does_not_know_a_file_of_theirs(
    shell: Shell, known: str, changed: list[str]
) -> None:
    folder = "/etc/systemd/system/b.service.d"
    for name in ("other.conf", "ours.conf"):
        shell.write(f"{folder}/{name}", "")
    paths = " ".join(str(shell.path(f"{folder}/{name}")) for name in known.split())
    assert (
        calls(shell, "reload_units a.service b.service", f"[ $1 != show ] || printf 'no\\n\\n\\nno\\n{paths}\\n'")
        == changed
    )


def test_a_unit_that_has_no_state_to_ask_for_ends_the_step(shell: Shell) -> None:
    assert calls(shell, "! reload_units a.service b@.service", "[ $1 != show ]") == []


def test_all_that_start_at_boot_are_enabled_in_one_call_whatever_they_were(shell: Shell) -> None:
    assert calls(shell, "enable_units a.service b.timer") == ["systemctl --root=/ enable -q a.service b.timer"]


def test_who_is_to_run_now_is_started_too(shell: Shell) -> None:
    enabled = "systemctl --root=/ enable -q a.service"
    assert calls(shell, "enable_units --now a.service") == [enabled, "systemctl start a.service"]


def test_a_unit_that_cannot_be_enabled_is_not_started_and_the_step_learns_of_it(shell: Shell) -> None:
    systemd = "[ $2 != enable ]"
    assert calls(shell, "! enable_units --now a.service", systemd) == ["systemctl --root=/ enable -q a.service"]


LATER = "reload_units_later; reload_units_later; "
END = '; for each in "${LATER[@]}"; do "$each"; done'
