"""Hosts that accept connections and say nothing, under the CLI: named, and waited for no longer than their limit."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import silent_hosts
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import find_engine
from cli.pulumi.processes import end_run
from cli.pulumi.workspace import Workspace
from cli.run_events import Event, Summary
from tests.engine.conftest import needs_cli
from tests.engine.played_hosts import PROJECT, play, write_config
from tests.engine.ssh_host import SshHost
from tests.engine.stack_under_test import Stack
from tests.engine.test_engine_run import wait_for
from tests.engine.test_lost_connection import line_to

pytestmark = needs_cli
COUNT = 6
# As long as it is quiet, three tries, and the CLI's own work on a machine that has more to do.
LIMIT = 120.0
# One step whose host is reached through a line that may be cut, and how.
PROGRAM = """
step("by-{way}", "touch begun; {script}", connection={connection}, delete="true")
"""
COPY = """
to = remote.ConnectionArgs(**{{**HOST, "port": {port}}})
remote.CopyToRemote("copied", connection=to, source=pulumi.FileAsset("host.json"), remote_path="/nowhere")
"""
WAYS = {"itself": "dict(port={port})", "bastion": "dict(proxy={{**HOST, 'port': {port}}})"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits in which a test can wait for them."""
    monkeypatch.setattr(silent_hosts, "QUIET_SECONDS", 8.0)
    monkeypatch.setattr(silent_hosts, "BANNER_SECONDS", 0.5)


def ending(operation: Callable[[], Summary]) -> Summary:
    """Run an operation that has to end by itself; in a thread, so that one that does not is seen."""
    done: list[Summary] = []
    thread = threading.Thread(target=lambda: done.append(operation()))
    thread.start()
    thread.join(LIMIT)
    waits = thread.is_alive()
    if waits:  # nothing of it outlives the test
        end_run(threading.Event())
        thread.join()
    assert not waits, f"it still waits after {LIMIT:.0f} s"
    return done[0]


@pytest.mark.usefixtures("own_home")
def test_a_silent_host_among_many_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    silent = threading.Event()
    silent.set()
    nodes = {"alpha1", "beta0", "beta1", "gamma0", "gamma1"}
    with play(COUNT) as played, line_to(played.ports[5], silent) as port:
        addresses = [("127.0.0.1", each) for each in [*played.ports[:5], port]]
        config = write_config(tmp_path, addresses, played.private_key, played.host_key)
        events: list[Event] = []
        deployment = Deployment(
            Workspace(PROJECT, "large", config, tmp_path / "state"), find_engine("cli"), events.append, parallel=64
        )
        summary = ending(deployment.up)
        silent.clear()
        again = ending(deployment.up)
    (failure,) = summary.failures
    assert failure.urn.endswith("::gamma1-scripts")
    said, _, following = failure.message.partition("\nnext: ")
    why = "accepts connections but does not answer (no SSH banner in 0.5 s, 3 times)"
    assert said == f"gamma1 (127.0.0.1:{port}) {why}"
    assert "or remove gamma1 from the config; then run up again" in following
    failed = [event.name for event in events if event.kind == "failed"]
    assert failed == ["gamma1-scripts"]
    assert again.ok, again.failures
    order = [name for name, _, _ in played.asked]
    assert {name for name in order if name.endswith("-node")} == {f"{node}-node" for node in nodes}
    # The others were at their last step before anybody had an answer of the silent one, and are not run again.
    first = order.index("gamma1-prepare")
    assert {f"{node}-node" for node in nodes - {"gamma1"}} <= set(order[:first])
    assert len(order) == len(set(order))


@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_destroy_ends_at_a_silent_host_and_goes_on_when_it_speaks(
    stack: Stack, host: SshHost, deploy: Callable[..., Deployment], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_hosts, "QUIET_SECONDS", 1.0)
    silent = threading.Event()
    events: list[Event] = []
    with line_to(host.port, silent) as port:
        connection = WAYS[way].format(port=port)
        stack.write(PROGRAM.format(way=way, script="true", connection=connection), {"any": "value"})
        assert deploy("dev", events).up().ok
        silent.set()
        (failure,) = ending(deploy("dev", events).destroy).failures
        silent.clear()
        assert ending(deploy("dev", events).destroy).ok
    where = f"127.0.0.1:{port}" if way == "itself" else f"bastion 127.0.0.1:{port}"
    assert failure.message == f"{where} accepts connections but does not answer (no SSH banner in 0.5 s, 3 times)"


@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
def test_a_copy_to_a_silent_host_is_named_though_it_has_no_command(
    stack: Stack, host: SshHost, deploy: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_hosts, "QUIET_SECONDS", 1.0)
    silent = threading.Event()
    silent.set()
    with line_to(host.port, silent) as port:
        stack.write(COPY.format(port=port), {"any": "value"})
        (failure,) = ending(deploy("dev", []).up).failures
    assert failure.urn.endswith("CopyToRemote::copied")
    assert failure.message.startswith(f"127.0.0.1:{port} accepts connections but does not answer")


@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
def test_a_step_on_a_host_that_speaks_is_left_alone_for_longer_than_the_limit(
    stack: Stack, host: SshHost, deploy: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_hosts, "QUIET_SECONDS", 1.0)
    heard: list[bool | None] = []
    speaks = silent_hosts._speaks

    async def listened(place: silent_hosts.Place) -> bool | None:
        heard.append(await speaks(place))
        (host.folder / "go").touch()
        return heard[-1]

    monkeypatch.setattr(silent_hosts, "_speaks", listened)
    script = "while ! test -e go; do sleep 0.05; done; touch ended"
    stack.write(PROGRAM.format(way="itself", script=script, connection="None"), {"any": "value"})
    events: list[Event] = []
    assert ending(deploy("dev", events).up).ok
    assert heard == [True]
    wait_for((host.folder / "ended").exists, "the step to end")
