"""Role clock: a machine keeps the head node's time before it has the cluster's key, and is told what fits it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from components.steps.composition import CHECK, CHECK_OF_NODE, JOIN, JOIN_OF_NODE, compose
from tests.unit.shell import ROLES, Shell

Compare = Callable[..., subprocess.CompletedProcess[str]]
HTTP = r"HTTP/1.0 200 OK\r\nDate: Sat, 21 Nov 2026 14:40:51 GMT\r\n\r\n"
TIME = 1795272051


def machine_with(shell: Shell, service: str = "", container: bool = False) -> None:
    """Let the machine have a time service that is enabled and not running, or none."""
    shell.stub("systemd-detect-virt", f"exit {int(not container)}")
    enabled = f'"-q is-enabled {service}"|' if service else ""
    shell.stub("systemctl", f'case "$*" in {enabled}"enable "*|"start "*) ;; *) exit 1 ;; esac')


@pytest.fixture
def compare(shell: Shell) -> Compare:
    """Call a function on a machine whose clock says `now`, where a server at `place` says HTTP's time."""

    def run(
        call: str, file: str, place: str, now: int, said: str = HTTP, **values: str
    ) -> subprocess.CompletedProcess[str]:
        peers = {"Peer": {"key": {"PeerAPIURL": ["http://100.64.0.1:4711", "http://[fd7a::1]:1"]}}}
        shell.stub("tailscale", f"echo '{json.dumps(peers)}'")
        shell.stub("timeout", f'[ "${{*: -2}}" = "{place}" ] && printf "{said}"')
        shell.stub("date", f'if [ "$1" = +%s ]; then echo {now}; else exec /usr/bin/date "$@"; fi')
        for place_of_room in ("/var/log/tailrack", "/var/lib/tailrack", "/etc"):
            shell.write(f"{place_of_room}/.there", "")
        return shell.call(f"exec 4>&2; trap report_failure EXIT; {call}", values, file)

    return run


OFF = pytest.mark.parametrize(
    ("ahead", "problem"),
    [(0, ""), (9, ""), (-9, ""), (60, "is 60s ahead of the head"), (-4000, "is 4000s behind the head")],
)


@OFF
def test_clocks_more_than_some_seconds_apart_stop_the_join(
    shell: Shell, compare: Compare, ahead: int, problem: str
) -> None:
    machine_with(shell, "chrony")
    done = compare(
        "compare_with_head", "clock/compare_with_head", "100.64.0.1 4711", TIME + ahead, HEAD_ADDRESS="100.64.0.1"
    )
    assert done.returncode == bool(problem), done.stderr
    assert problem in done.stderr


def test_a_head_that_does_not_tell_its_time_stops_nobody(compare: Compare) -> None:
    done = compare(
        "compare_with_head",
        "clock/compare_with_head",
        "100.64.0.1 4711",
        TIME,
        said="nothing",
        HEAD_ADDRESS="100.64.0.1",
    )
    assert done.returncode == 0
    assert "clocks are not compared" in done.stderr


CONTROL = {"http://control.lab:8080": "control.lab 8080", "": "controlplane.tailscale.com 80",
           "https://hs.example.org": "hs.example.org 80", "http://10.0.0.1/": "10.0.0.1 80",
           "https://hs.example.org:8443/x": "hs.example.org 80"}  # fmt: skip


@pytest.mark.parametrize("url", CONTROL)
def test_a_machine_whose_clock_is_far_off_is_refused_before_anything_on_it_is_changed(
    shell: Shell, compare: Compare, url: str
) -> None:
    machine_with(shell)

    def gate(ahead: int) -> subprocess.CompletedProcess[str]:
        return compare("clock_check", "clock/check", CONTROL[url], TIME + ahead, TAILNET_CONTROL_URL=url)

    assert gate(0).returncode == gate(119).returncode == 0
    refused = gate(-600)
    assert refused.returncode == 1
    assert "the clock here is 600s behind that of the tailnet's control server" in refused.stderr
    changing = ("systemctl enable", "systemctl start", "apt", "tailscale")
    assert not [call for call in shell.calls if call.startswith(changing)]


@pytest.mark.parametrize("url", ["http://control.lab:8080", "http://[fd00::1]:8080", "nonsense"])
def test_a_control_server_that_does_not_tell_its_time_stops_nobody(compare: Compare, url: str) -> None:
    done = compare("clock_check", "clock/check", "control.lab 8080", TIME, said="", TAILNET_CONTROL_URL=url)
    assert done.returncode == 0, done.stderr
    assert "sends no time" in done.stderr


@pytest.mark.parametrize(
    ("service", "container", "remedy"),
    [
        ("", False, "no time service runs on a1, and up installs one only if the clock is near enough: "
                    "set it once there with date -u -s '2026-11-21 14:40:51'"),
        ("", True, "set the clock of the machine that the container a1 runs on"),
        ("chrony", False, "its time service chrony does not keep it right: see 'chronyc sources'"),
        ("systemd-timesyncd", False, "run 'systemctl restart systemd-timesyncd' on a1"),
        ("ntpsec", False, "see 'journalctl -u ntpsec', run 'systemctl restart ntpsec' on a1"),
    ],
)  # fmt: skip
def test_who_is_refused_for_the_clock_is_told_what_the_machine_has(
    shell: Shell, compare: Compare, service: str, container: bool, remedy: str
) -> None:
    machine_with(shell, service, container)
    url = "http://control.lab:8080"
    done = compare("clock_check", "clock/check", CONTROL[url], TIME + 900, TAILNET_CONTROL_URL=url)
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
    assert remedy in told
    for other in {"chronyc", "systemd-timesyncd"} - {
        word for word in ("chronyc", "systemd-timesyncd") if word in remedy
    }:
        assert other not in told, "it is told of what it lacks"


@pytest.mark.parametrize(
    ("there", "container", "expected"),
    [
        ("chrony", False, ["systemctl start chrony", "timedatectl show -p NTPSynchronized --value"]),
        ("", False, ["ensure_packages systemd-timesyncd", "systemctl enable -q systemd-timesyncd",
                     "systemctl start systemd-timesyncd", "timedatectl show -p NTPSynchronized --value"]),
        ("", True, []),
    ],
    ids=["another's service", "none", "a container"],
)  # fmt: skip
def test_a_machine_has_one_service_that_keeps_its_clock(
    shell: Shell, there: str, container: bool, expected: list[str]
) -> None:
    machine_with(shell, there, container)
    shell.stub("ensure_packages")
    shell.stub("timedatectl", "echo yes")
    done = shell.call("unset -f ensure_packages; clock_join", {}, "clock/join")
    assert done.returncode == 0, done.stderr
    telling = ("ensure", "systemctl enable", "systemctl start", "timedatectl")
    assert [call for call in shell.calls if call.startswith(telling)] == expected


def test_a_service_that_sets_no_clock_in_time_is_said_and_stops_nobody(shell: Shell) -> None:
    machine_with(shell, "chrony")
    shell.stub("timedatectl", "echo no")
    done = shell.call("CLOCK_SET_LIMIT=0; clock_join", {}, "clock/join")
    assert done.returncode == 0, done.stderr
    assert "chrony has not set the clock within 0s" in done.stderr


@pytest.mark.parametrize("phases", [CHECK, CHECK_OF_NODE])
def test_the_clock_is_looked_at_in_the_gate(phases: tuple[str, ...]) -> None:
    (up,) = re.findall(r"\nup\(\) \{(.*?)\n\}", compose(ROLES, phases).text, re.DOTALL)
    assert "clock_check" in up.split()


def test_the_clock_is_right_before_a_machine_has_the_munge_key() -> None:
    for phases in (JOIN, JOIN_OF_NODE):
        text = compose(ROLES, phases).text
        calls = re.findall(r"^    ([a-z]+_(?:join|check_path))$", text[text.index("\nup() {") :], re.MULTILINE)
        assert calls[0] == "clock_join", "a wrong clock fails tailscaled's certificates"
        before = calls[: calls.index("munge_join")]
        assert ("tailnet_check_path" in before) is (phases == JOIN_OF_NODE)
    assert "    compare_with_head" in compose(ROLES, JOIN_OF_NODE).text.splitlines()
