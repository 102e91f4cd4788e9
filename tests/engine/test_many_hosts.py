"""The whole program for many hosts, one of them dead: it is named, and dialled no more often than its limit."""

import socket
from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from cli.pulumi.workspace import Workspace
from cli.run_events import Event, Summary
from cli.stack_config.stack_file import load_config
from components.steps.step import DIAL_ERROR_LIMIT
from engine.engine import Engine
from stacks import runtime_tuning
from tests.engine.conftest import needs_cli
from tests.engine.played_hosts import PROJECT, play, write_config

COUNT = 16


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("engine", [IN_PROCESS, pytest.param("cli", marks=needs_cli)])
def test_a_dead_host_among_many_is_named_and_the_others_are_done(engine: str, tmp_path: Path) -> None:
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
    others = {f"{node}-node" for node in nodes - {"alpha0", "gamma1"}}
    assert {name for name in done if name.endswith("-node")} == others
    # Sites without the dead one are measured.
    assert {name for name in done if name.startswith("validate-")} == {"validate-alpha", "validate-beta"}


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
