"""How the engine runs steps: in parallel, in order, past failures, and what it tells."""

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from cli.run_events import EngineError
from engine import commands
from tests.engine.ssh_host import serve
from tests.engine.stack_under_test import Stack

SECONDS = 60
"""Longest wait for a condition."""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return when condition holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited {SECONDS} s for {what}"
        time.sleep(0.02)


def scripts(stack: Stack) -> list[str]:
    """The stdin of every command on the host since the last call, in order."""
    return [asked.stdin for asked in stack.host.take()]


# Each of the two ends only when the other has begun.
MEET = """
for one, other in (("a", "b"), ("b", "a")):
    step(one, f"touch {one}; for i in $(seq 100); do test -e {other} && exit; sleep 0.05; done; exit 1")
"""


@pytest.mark.parametrize(("sessions", "connections"), [(10, 1), (1, 2)])
def test_steps_that_run_at_once_share_a_connection_if_the_host_allows_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, sessions: int, connections: int
) -> None:
    open_session = asyncssh.SSHServerConnection._process_session_open

    def limited(connection: Any, packet: Any) -> Any:
        if len(connection._channels) >= sessions:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "as MaxSessions of sshd")
        return open_session(connection, packet)

    monkeypatch.setattr(asyncssh.SSHServerConnection, "_process_session_open", limited)
    stack.write(MEET)
    assert stack.up().ok
    assert len(stack.host.connections) == connections


@pytest.mark.parametrize("fails", [False, True])
def test_a_new_host_has_the_busiest_one_connected_early_and_again_if_that_fails(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    stack.write('step("a", "echo a")')
    assert stack.up().ok
    dialled, dial = list[int](), commands._open

    async def flaky(settings: dict[str, Any]) -> Any:
        dialled.append(settings["port"])
        if fails and dialled.count(stack.host.port) == 1 and settings["port"] == stack.host.port:
            raise OSError("not yet")
        return await dial(settings)

    monkeypatch.setattr(commands, "_open", flaky)
    (tmp_path / "new").mkdir()
    with serve(tmp_path / "new") as new:
        stack.write(f"""
step("a", "echo a")
to = remote.ConnectionArgs(**{new.connection()!r})
new = remote.CopyToRemote("new", connection=to, source=pulumi.FileArchive("."), remote_path="x")
step("b", "echo b", depends_on=[new])
""")
        assert stack.up().ok
    assert dialled[0] == stack.host.port
    assert len(stack.host.connections) == 2


def test_a_preview_runs_no_step_and_hides_unknown_values(stack: Stack) -> None:
    stack.write("""
a = step("a", "echo a")
b = step("b", pulumi.Output.concat("echo ", a.stdout))
a.stdout.apply(lambda text: pulumi.log.info(f"known: {text}"))
pulumi.log.info(f"dry {pulumi.runtime.is_dry_run()} {pulumi.get_stack()} {pulumi.get_project()}")
""")
    summary = stack.engine().preview()
    assert (summary.ok, summary.counts["create"]) == (True, 3)
    assert scripts(stack) == []
    assert not stack.state_file.exists()
    assert [event.text for event in stack.events if event.kind == "message"] == ["dry True dev trial"]
    assert stack.up().ok
    assert "known: a" in [event.text for event in stack.events]
    stack.write('a = step("a", "echo new")\nb = step("b", pulumi.Output.concat("echo ", a.stdout))')
    assert stack.engine().preview().counts == {"create": 0, "update": 2, "replace": 0, "delete": 0, "same": 1}


def test_a_failure_skips_only_the_dependent_steps(stack: Stack) -> None:
    program = """
bad = step("bad", "{bad}")
child = step("child", bad.stdout.apply(lambda text: "echo " + text))
grandchild = step("grandchild", "echo grandchild", depends_on=[child])
one = step("one", "sleep 0.5; echo one")
two = step("two", one.stdout.apply(lambda text: "echo " + text))
pulumi.export("two", two.stdout)
pulumi.export("child", child.stdout)
"""
    stack.write(program.format(bad="echo out; echo err >&2; exit 7"))
    summary = stack.up()
    (failure,) = summary.failures
    assert failure.urn.endswith("::bad")
    assert failure.message.startswith('Process exited with status 7: running "bash -euo pipefail -s":\n')
    assert "out\n" in failure.message
    assert "err\n" in failure.message
    assert sorted(event.name for event in stack.events if event.kind == "skipped") == ["child", "grandchild"]
    assert stack.engine().outputs() == {"two": "one"}
    assert sorted(urn.rpartition("::")[2] for urn in stack.engine_picture()["resources"]) == ["one", "two"]
    scripts(stack)
    stack.write(program.format(bad="echo fine"))
    summary = stack.up()
    assert (summary.ok, summary.counts["create"], summary.counts["same"]) == (True, 3, 3)
    assert scripts(stack) == ["echo fine", "echo fine", "echo grandchild"]
    assert stack.engine().outputs() == {"two": "one", "child": "fine"}


def test_after_a_failure_nothing_is_deleted_until_a_run_succeeds(stack: Stack) -> None:
    stack.write("""
old = step("old", "echo old", delete="echo bye old")
step("user", "echo user", depends_on=[old])
step("spare", "echo spare", delete="echo bye spare")
""")
    assert stack.up().ok
    scripts(stack)
    stack.write('step("user", "exit 1")')
    assert not stack.up().ok
    assert scripts(stack) == ["exit 1"]
    stack.write('step("user", "exit 0")')
    assert stack.up().ok
    first, *deleted = scripts(stack)
    assert first == "exit 0"
    assert sorted(deleted) == ["echo old", "echo spare"]


def test_a_failed_delete_keeps_its_dependencies_for_the_next_run(stack: Stack) -> None:
    stack.write("""
base = step("base", "true", delete="echo bye base")
step("top", "true", delete="test ! -e stuck", depends_on=[base])
""")
    assert stack.up().ok
    (stack.host.folder / "stuck").touch()
    stack.host.take()
    summary = stack.engine().destroy()
    assert [failure.urn.rpartition("::")[2] for failure in summary.failures] == ["top"]
    assert [asked.command for asked in stack.host.take()] == ["test ! -e stuck"]
    (stack.host.folder / "stuck").unlink()
    assert stack.engine().destroy().ok
    assert [asked.command for asked in stack.host.take()] == ["test ! -e stuck", "echo bye base"]
    assert stack.engine_picture()["components"] == []


def test_a_run_error_shows_its_message_and_a_crash_its_own_trace(stack: Stack) -> None:
    stack.write('step("a", "true")\nraise pulumi.RunError("the config is wrong: say this")')
    assert [failure.message for failure in stack.up().failures] == ["the config is wrong: say this"]
    assert scripts(stack) == []
    stack.write("def broken():\n    return 1 / 0\nbroken()")
    (failure,) = stack.up().failures
    assert failure.message.startswith("Program failed with an unhandled exception:\nTraceback")
    assert "return 1 / 0" in failure.message


def test_a_host_with_another_key_is_not_spoken_to(stack: Stack) -> None:
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    stack.write(f'step("a", "echo a", connection=dict(host_key="{other}", dial_error_limit=0))')
    (failure,) = stack.up().failures
    assert failure.message.startswith("after 0 failed attempts: ")
    assert "ost key is not trusted" in failure.message
    assert scripts(stack) == []


def test_a_host_that_does_not_answer_is_dialled_again_up_to_the_limit(stack: Stack) -> None:
    stack.write('step("a", "echo a", connection=dict(port=1, dial_error_limit=2))')
    summary = stack.up()
    assert summary.failures[0].message.startswith("after 2 failed attempts: root@127.0.0.1:1: ")
    assert summary.seconds > 0.1 + 0.15


def test_a_host_that_accepts_and_says_nothing_is_given_up(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled, connect = list[tuple[int, float]](), asyncssh.connect

    def counted(host: str, port: int, **how: Any) -> Any:
        dialled.append((port, how["connect_timeout"]))
        return connect(host, port, **how)

    monkeypatch.setattr(asyncssh, "connect", counted)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        dial = f"dict(port={port}, dial_error_limit=1, per_dial_timeout=1)"
        stack.write(f'step("dead", "true", connection={dial})\nstep("well", "echo well")')
        summary = stack.up()
    (failure,) = summary.failures
    assert failure.message.startswith(f"after 1 failed attempts: root@127.0.0.1:{port}: ")
    assert [seconds for at, seconds in dialled if at == port] == [1, 1]
    assert summary.seconds > 2
    assert scripts(stack) == ["echo well"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_finishes_running_steps_and_starts_none(stack: Stack, number: signal.Signals) -> None:
    stack.write("""
first = step("first", "touch begun; while ! test -e go; do sleep 0.05; done; echo first")
step("second", "echo second", depends_on=[first])
""")
    run = stack.start_up()
    wait_for((stack.host.folder / "begun").exists, "the first step")
    run.send_signal(number)
    (stack.host.folder / "go").touch()
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 1
    assert "second skipped the run was stopped" in output
    assert [urn.rpartition("::")[2] for urn in stack.engine_picture()["resources"]] == ["first"]
    assert stack.up().counts["create"] == 1


def test_a_killed_run_is_taken_up_again(stack: Stack) -> None:
    stack.write("""
first = step("first", "echo first")
second = step("second", "touch begun; while ! test -e go; do sleep 0.05; done; echo second", depends_on=[first])
step("third", "echo third", depends_on=[second])
""")
    run = stack.start_up()
    wait_for((stack.host.folder / "begun").exists, "the second step")
    with pytest.raises(EngineError, match="another run works on"):
        stack.up()
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=SECONDS)
    (stack.host.folder / "go").touch()
    stack.host.take()
    summary = stack.up()
    assert (summary.ok, summary.counts["create"], summary.counts["same"]) == (True, 2, 2)
    assert [script.rpartition("; ")[2] for script in scripts(stack)] == ["echo second", "echo third"]
