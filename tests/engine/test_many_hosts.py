"""The whole program for many hosts, one of them dead: it is named, and dialled no more often than its limit."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
import pulumi
import pytest
from pulumi import _types
from pulumi.runtime import resource_cycle_breaker

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from cli.pulumi.workspace import Workspace
from cli.run_events import Event, Summary
from cli.stack_config.stack_file import load_config
from components.steps.step import DIAL_ERROR_LIMIT
from engine.engine import Engine
from engine.monitor import Monitor
from stacks import runtime_tuning
from stacks.runtime_tuning import PREVIEWED_AT_A_TIME
from tests.engine.conftest import needs_cli
from tests.engine.played_hosts import PROJECT, play, write_config

COUNT = 16


@pytest.mark.parametrize("engine", [IN_PROCESS, pytest.param("cli", marks=needs_cli)])
def test_a_dead_host_among_many_is_named_and_the_others_are_done(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")  # given back after the test: the driver sets it
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    events: list[Event] = []
    with play(COUNT - 1) as played, socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
        taken.close()  # nobody listens there now
        addresses = [("127.0.0.1", port) for port in [*played.ports[:5], dead, *played.ports[5:]]]
        config = write_config(tmp_path, addresses, played.private_key, played.host_key)
        found = Found(None, "") if engine == IN_PROCESS else find_engine("cli")
        workspace = Workspace(PROJECT, "large", config, tmp_path / "state")
        deployment = Deployment(workspace, found, events.append, parallel=64)
        summary = deployment.up()
    (failure,) = [one for one in summary.failures if one.urn]
    assert failure.urn.endswith("::gamma1-scripts")
    assert str(dead) in failure.message
    assert f"after {DIAL_ERROR_LIMIT} failed attempts" in failure.message
    done = {name for name, _, _ in played.asked}
    nodes = {f"{site}{number}" for site, many in (("alpha", 6), ("beta", 5), ("gamma", 5)) for number in range(many)}
    assert {name for name in done if name.endswith("-node")} == {
        f"{node}-node" for node in nodes - {"alpha0", "gamma1"}
    }
    # Sites without the dead one are measured.
    assert {name for name in done if name.startswith("validate-")} == {"validate-alpha", "validate-beta"}


MOST_OUTPUTS = 12  # of a registration, the program's own among them, and five for each step with a former name
MOST_CLASSES = 30  # of resources, each of which has its annotations read


@pytest.fixture
def preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Summary]:
    """Previews the whole program in this process, as it does for many hosts."""
    monkeypatch.setattr(runtime_tuning, "MANY_HOSTS", COUNT - 1)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open sesame")
    login, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    private, public = login.export_private_key().decode(), " ".join(host.export_public_key().decode().split()[:2])
    config = write_config(tmp_path, [("192.0.2.1", port) for port in range(1, COUNT + 1)], private, public)
    engine = Engine(PROJECT, "large", lambda stack: tmp_path / stack, load_config(PROJECT, config), lambda event: None)
    return engine.preview


def test_the_runtime_waits_for_one_registration_after_the_other(
    preview: Callable[[], Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for any of all Outputs, again and again: see the end of __main__.py."""
    waited, wait = list[int](), asyncio.wait

    async def counted(futures: Any, **how: Any) -> Any:
        waited.append(len(futures))
        return await wait(futures, **how)

    monkeypatch.setattr(asyncio, "wait", counted)
    summary = preview()
    assert summary.ok
    assert sum(waited) < summary.counts["create"]


def test_the_runtime_logs_no_unused_lines_and_makes_few_outputs(
    preview: Callable[[], Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """See stacks/runtime_tuning.py: another release of the runtime may do otherwise."""
    said, made = list[str](), list[int]()
    track = pulumi.Output._track

    def counted(self: pulumi.Output[Any]) -> None:
        made.append(1)
        track(self)

    monkeypatch.setattr(pulumi.Output, "_track", counted)
    monkeypatch.setattr(Monitor, "Log", lambda self, request: said.append(request.message))
    summary = preview()
    assert summary.ok
    # One more for the stack itself and what is done before the program begins.
    assert len([message for message in said if "resource" in message]) <= 2, said
    assert len(made) < MOST_OUTPUTS * summary.counts["create"], len(made) / summary.counts["create"]


def test_the_runtime_reads_no_class_twice_looks_for_no_circle_and_has_few_threads(
    preview: Callable[[], Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched, read, threads = list[object](), list[type](), set[int]()
    annotations, register = _types._types_from_annotations, Monitor.RegisterResource

    def told(self: Monitor, request: Any) -> Any:
        threads.add(threading.get_ident())
        return register(self, request)

    def read_once(of: type) -> Any:
        read.append(of)
        return annotations(of)

    monkeypatch.setattr(_types, "_types_from_annotations", read_once)
    monkeypatch.setattr(resource_cycle_breaker, "_reachable", lambda **way: searched.append(way))
    monkeypatch.setattr(Monitor, "RegisterResource", told)
    assert preview().ok
    assert len(read) < MOST_CLASSES
    assert not searched
    assert len(threads) <= PREVIEWED_AT_A_TIME
