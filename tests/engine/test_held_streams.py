"""A command that has ended, and has left something running that holds its streams: nobody waits for that for ever."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import UInt32

from engine import commands
from engine.commands import LOCAL, REMOTE, CommandError, Commands


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.setattr(commands, "AFTER_END_SECONDS", 0.5)
    monkeypatch.setattr(commands, "LOOK_SECONDS", 0.1)
    with Commands(1, tmp_path) as run:
        yield run


def test_a_local_command_that_leaves_a_holder_of_its_streams_has_ended(run: Commands) -> None:
    begun = time.monotonic()
    assert run.run(LOCAL, "timeout 30 tail -f /dev/null & echo said", {}, {}) == {"stdout": "said", "stderr": ""}
    assert time.monotonic() - begun < 20


def test_a_command_that_prints_without_an_end_is_an_error(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_OUTPUT", 2**20)
    with pytest.raises(CommandError, match="it printed more than 1048576 bytes"):
        run.run(LOCAL, "timeout 30 yes", {}, {})


def test_a_local_command_receives_its_stdin_and_returns_its_status(run: Commands) -> None:
    assert run.run(LOCAL, "cat", {"stdin": "x" * 2**20}, {})["stdout"] == "x" * 2**20
    assert run.run(LOCAL, "true", {"stdin": "x" * 2**20}, {})["stdout"] == ""
    with pytest.raises(CommandError, match="exited with status 7"):
        run.run(LOCAL, "exit 7", {}, {})


def test_a_host_that_says_that_a_command_has_ended_and_keeps_its_streams_open_is_not_waited_for(run: Commands) -> None:
    client, own = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    loop = asyncio.new_event_loop()

    async def handle(process: asyncssh.SSHServerProcess[str]) -> None:
        process.stdout.write("said")
        # As sshd does when the program ends and another one has its stdout.
        process.channel._send_request(b"exit-status", UInt32(0))
        await asyncio.Event().wait()

    async def start() -> asyncssh.SSHAcceptor:
        keys = asyncssh.import_authorized_keys(client.export_public_key().decode())
        return await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[own], authorized_client_keys=keys,
            process_factory=handle,
        )  # fmt: skip

    acceptor = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    connection: dict[str, Any] = {
        "host": "127.0.0.1", "port": acceptor.get_port(), "user": "root", "perDialTimeout": 5, "dialErrorLimit": 1,
        "privateKey": client.export_private_key().decode(), "hostKey": own.export_public_key().decode(),
    }  # fmt: skip
    begun = time.monotonic()
    try:
        assert run.run(REMOTE, "x", {"connection": connection}, {})["stdout"] == "said"
        assert time.monotonic() - begun < 20
    finally:
        loop.call_soon_threadsafe(acceptor.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
