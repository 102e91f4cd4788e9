"""A connection that goes silent in the middle of a step: noticed, and the step may be run again at once."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from cli.output.failures import with_remedies
from cli.run_events import Failure, Summary
from engine import commands
from engine.commands import REMOTE, CommandError, Commands
from tests.engine.ssh_host import SshHost
from tests.engine.test_engine_run import wait_for

COMMAND = ": b1-node b1 'b1: share and slurmd'; mkfifo wait; touch begun; cat wait; touch ended"


@contextmanager
def line_to(port: int, cut: threading.Event) -> Iterator[int]:
    """Forward connections to a port of this machine, both ways, and in silence nothing more once it is cut."""
    with ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

        def forward(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    if not cut.is_set():
                        target.sendall(data)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    here = opened.enter_context(listening.accept()[0])
                    there = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                    for ends in ((here, there), (there, here)):
                        threading.Thread(target=forward, args=ends, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def test_a_host_that_goes_silent_is_lost_soon(host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commands.KEEPALIVE_SECONDS * (commands.KEEPALIVE_QUESTIONS + 2) <= 60
    monkeypatch.setattr(commands, "KEEPALIVE_SECONDS", 0.2)
    cut = threading.Event()

    def cut_when_begun() -> None:
        wait_for((host.folder / "begun").exists, "the step to begin")
        cut.set()

    threading.Thread(target=cut_when_begun, daemon=True).start()
    with line_to(host.port, cut) as port:
        connection = {**commands.CONNECTION_DEFAULTS, "host": "127.0.0.1", "port": port}
        connection |= {"privateKey": host.private_key, "hostKey": host.host_key}
        with pytest.raises(CommandError) as lost, Commands(1, tmp_path) as commands_:
            commands_.run(REMOTE, COMMAND, {"connection": connection}, {})
    # What it had begun there goes on.
    assert not (host.folder / "ended").exists()
    (host.folder / "wait").write_text("")
    wait_for((host.folder / "ended").exists, "the step to end")
    (told,) = with_remedies(Summary(failures=[Failure("urn", str(lost.value), COMMAND)])).failures
    assert "the connection was lost" in told.message
    assert "next: the connection to b1 broke during the step" in told.message
