"""Role clock: a machine keeps the head node's time before it has the cluster's key, and is told what fits it."""

import contextlib
import io
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from unittest import mock

import pytest

from components.node import packages
from components.node.failure import Failure
from components.roles.base.clock import host as clock_host
from components.steps.composition import JOIN, JOIN_OF_NODE, compose
from tests.unit.phases import called
from tests.unit.shell import ROLES, Shell, assert_fails, assert_ok, script_of

Compare = Callable[..., subprocess.CompletedProcess[str]]
HTTP = "HTTP/1.0 200 OK\r\nDate: Sat, 21 Nov 2026 14:40:51 GMT\r\n\r\n"
TIME = 1795272051


def machine_with(shell: Shell, service: str = "", container: bool = False) -> None:
    """Let the machine have a time service that is enabled and not running, or none."""
    shell.stub("systemd-detect-virt", f"exit {int(not container)}")
    enabled = f'"-q is-enabled {service}"|' if service else ""
    shell.stub("systemctl", f'case "$*" in {enabled}"enable "*|"start "*) ;; *) exit 1 ;; esac')


def times(place: str) -> Callable[[str, int], float | None]:
    """What servers say of the time: the one at a place says it, all others nothing."""
    return lambda host, port: TIME if f"{host} {port}" == place else None


@pytest.fixture
def check(shell: Shell) -> Compare:
    """Check a machine whose clock says `now`, where a control server at `place` says the time."""

    def run(place: str, now: int, url: str) -> subprocess.CompletedProcess[str]:
        with mock.patch.object(clock_host, "http_time", times(place)), mock.patch("time.time", return_value=now):
            return shell.step(script_of("clock", "check"), {"tailnet_control_url": url})

    return run


@pytest.fixture
def compare(shell: Shell) -> Compare:
    """Compare the clock of a machine that says `now` with that of a head node whose tailscaled says the time."""

    def run(now: int, place: str = "100.64.0.1 4711") -> subprocess.CompletedProcess[str]:
        peers = {"Peer": {"key": {"PeerAPIURL": ["http://[fd7a::1]:1", "http://100.64.0.1:4711"]}}}
        shell.stub("tailscale", f"echo '{json.dumps(peers)}'")
        said = io.StringIO()
        with (
            shell.here(),
            contextlib.redirect_stderr(said),
            mock.patch.object(clock_host, "http_time", times(place)),
            mock.patch("time.time", return_value=now),
        ):
            try:
                clock_host.compare_with_head("100.64.0.1", "a1")
            except Failure as failure:
                return subprocess.CompletedProcess([], 1, "", f"{failure.reason}\nnext: {failure.remedy}")
        return subprocess.CompletedProcess([], 0, "", said.getvalue())

    return run


def test_a_servers_time_is_read_from_its_answer() -> None:
    for answer, told in (
        (HTTP, TIME),
        (HTTP.replace("Date", "date").replace("200 OK", "301 Moved"), TIME),
        ("HTTP/1.0 200 OK\r\n\r\n", None),
        ("HTTP/1.0 200 OK\r\nDate: yesterday\r\n\r\n", None),
        ("SSH-2.0-x\r\n", None),
        ("", None),
        ("x" * 10**6, None),
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve(answer: str = answer) -> None:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1000)
                    connection.sendall(answer.encode())

            thread = threading.Thread(target=serve)
            thread.start()
            assert clock_host.http_time("127.0.0.1", server.getsockname()[1]) == told, answer
            thread.join()
            port = server.getsockname()[1]
        assert clock_host.http_time("127.0.0.1", port) is None, answer


def test_clocks_seconds_apart_stop_the_join(shell: Shell, compare: Compare) -> None:
    machine_with(shell, "chrony")
    problems = {0: "", 9: "", -9: "", 60: "is 60s ahead of the head", -4000: "is 4000s behind the head"}
    for ahead, problem in problems.items():
        done = compare(TIME + ahead)
        assert done.returncode == bool(problem), done.stderr
        assert problem in done.stderr


CONTROL = {"http://control.lab:8080": "control.lab 8080", "": "controlplane.tailscale.com 80",
           "https://hs.example.org": "hs.example.org 80", "http://10.0.0.1/": "10.0.0.1 80",
           "https://hs.example.org:8443/x": "hs.example.org 80"}  # fmt: skip


@pytest.mark.parametrize("url", CONTROL)
def test_the_check_rejects_a_wrong_clock_before_it_changes_the_machine(shell: Shell, check: Compare, url: str) -> None:
    machine_with(shell)

    def gate(ahead: int) -> subprocess.CompletedProcess[str]:
        return check(CONTROL[url], TIME + ahead, url)

    assert gate(0).returncode == gate(119).returncode == 0
    assert_fails(gate(-600), "the clock here is 600s behind that of the tailnet's control server")
    changing = ("systemctl enable", "systemctl start", "apt", "tailscale")
    assert not [call for call in shell.calls if call.startswith(changing)]


@pytest.mark.parametrize("url", ["http://control.lab:8080", "http://[fd00::1]:8080", "nonsense"])
def test_a_control_server_without_a_readable_time_stops_no_join(shell: Shell, check: Compare, url: str) -> None:
    assert_ok(check("nowhere 1", TIME, url))
    assert "sends no time" in shell.path("/var/log/tailrack/a1-step.log").read_text()


def test_the_clock_error_names_the_time_service_of_the_machine(shell: Shell, check: Compare) -> None:
    for service, container, remedy in (
        ("", False, "no time service runs on a1, and up installs one only if the clock is near enough: "
                    "set it once there with date -u -s '2026-11-21 14:40:51'"),
        ("", True, "set the clock of the machine that the container a1 runs on"),
        ("chrony", False, "its time service chrony does not keep it right: see 'chronyc sources'"),
        ("systemd-timesyncd", False, "run 'systemctl restart systemd-timesyncd' on a1"),
        ("ntpsec", False, "see 'journalctl -u ntpsec', run 'systemctl restart ntpsec' on a1"),
    ):  # fmt: skip
        machine_with(shell, service, container)
        url = "http://control.lab:8080"
        done = check(CONTROL[url], TIME + 900, url)
        (told,) = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
        assert remedy in told, service
        for other in {"chronyc", "systemd-timesyncd"} - {
            word for word in ("chronyc", "systemd-timesyncd") if word in remedy
        }:
            assert other not in told, "it is told of what it lacks"


def test_a_machine_has_one_time_service(shell: Shell) -> None:
    shell.stub("timedatectl", "echo yes")
    shows, installed = "timedatectl show -p NTPSynchronized --value", "systemd-timesyncd"
    enabled = [
        f"ensure_packages {installed}",
        f"systemctl enable -q {installed}",
        f"systemctl start {installed}",
        shows,
    ]
    telling = ("ensure", "systemctl enable", "systemctl start", "timedatectl")
    for service, container, expected in (
        ("chrony", False, ["systemctl start chrony", shows]),
        ("", False, enabled),
        ("", True, []),
    ):
        machine_with(shell, service, container)
        before = len(shell.calls)
        with mock.patch.object(packages, "ensure", lambda host, name: shell.note(f"ensure_packages {name}")):
            assert_ok(shell.step(script_of("clock", "join"), {}))
        assert [call for call in shell.calls[before:] if call.startswith(telling)] == expected, (service, container)


def test_the_clock_is_right_before_a_machine_has_the_munge_key() -> None:
    for phases in (JOIN, JOIN_OF_NODE):
        calls = called(compose(ROLES, phases).calls)
        assert calls[0] == "clock/join", "a wrong clock fails tailscaled's certificates"
        before = calls[: calls.index("munge/join")]
        assert ("tailnet/check_path" in before) is (phases == JOIN_OF_NODE)
