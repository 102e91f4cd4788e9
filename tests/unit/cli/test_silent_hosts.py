"""When a run of the CLI is ended for hosts that accept connections and say nothing, and when it is not."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from pulumi.automation.events import EngineEvent
from pulumi.runtime.rpc import _special_secret_sig, _special_sig_key

from cli import silent_hosts
from cli.pulumi import processes as cli_processes
from cli.pulumi.processes import end_run
from cli.silent_hosts import QUIET_SECONDS, TRIES, Place, SilentHosts, place_of

COMMAND, COPY = "command:remote:Command", "command:remote:CopyToRemote"
BANNER = b"SSH-2.0-OpenSSH_10.0\r\n"


@dataclass
class Host:
    """A port that says this to whoever connects; nothing, where it is None, and where it is empty it hangs up.

    heard   what it was told itself
    """

    say: bytes | None
    refuses: bool = False
    asked: int = 0
    heard: bytes = b""
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        writer.write(self.say or b"")
        if self.say != b"":
            self.heard += await reader.read()
        writer.close()


@dataclass
class Watched:
    """A run that is watched by a clock of its own. `hosts` is where its steps are, as far as it is written down."""

    hosts: dict[str, Host] = field(default_factory=dict)
    time: float = 0.0
    ended: int = 0
    meanwhile: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.silent = SilentHosts(self.places, self.end, lambda: self.time)

    def places(self) -> dict[str, Place]:
        self.meanwhile()
        return {urn: Place("127.0.0.1", host.port) for urn, host in self.hosts.items()}

    def end(self, stopping: threading.Event) -> None:
        self.ended += 1

    def hear(self, kind: str, urn: str, type_: str = COMMAND, custom: bool = True) -> None:
        state = {"type": type_, "urn": urn, "custom": custom, "id": "", "parent": "", "inputs": {}, "outputs": {}}
        metadata = {"op": "create", "urn": urn, "type": type_, "new": state, "provider": ""}
        told = {kind: {"metadata": metadata, "status": 0, "steps": 0}}
        self.silent.on_event(EngineEvent.from_json({"sequence": 1, "timestamp": 1, **told}))

    def begin(self, urn: str, host: Host | None = None, type_: str = COMMAND) -> None:
        self.hear("resourcePreEvent", urn, type_)
        if host:
            self.hosts[urn] = host

    def look_after(self, seconds: float) -> list[str]:
        """Look when so many seconds have passed; return the steps that the run was ended for."""
        self.time += seconds

        async def look() -> None:
            servers = []
            for host in {id(host): host for host in self.hosts.values()}.values():
                servers.append(await asyncio.start_server(host.answer, "127.0.0.1", 0))
                host.port = servers[-1].sockets[0].getsockname()[1]
                if host.refuses:
                    servers[-1].close()
            await self.silent.look()
            for server in servers:
                server.close()

        asyncio.run(look())
        assert self.ended == bool(self.silent.found)
        return sorted(self.silent.found)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_hosts, "BANNER_SECONDS", 0.3)


def test_a_run_that_waits_for_silent_hosts_alone_is_ended_when_it_has_been_quiet_for_the_limit() -> None:
    run, one, other = Watched(), Host(None), Host(None)
    run.begin("cluster", type_="tailrack:cluster:Cluster")
    run.hear("resOutputsEvent", "cluster")
    # This has no end before the program's.
    run.hear("resourcePreEvent", "node", "tailrack:cluster:ComputeNode", custom=False)
    run.begin("a1-prepare", one)
    run.begin("a2-copy", other, COPY)
    run.begin("a3-prepare", other)
    assert run.look_after(QUIET_SECONDS - 1) == []
    assert one.asked == 0
    assert run.look_after(1) == ["a1-prepare", "a2-copy", "a3-prepare"]
    assert (one.asked, other.asked) == (TRIES, TRIES)
    assert one.heard == b""
    why = "accepts connections but does not answer (no SSH banner in 0.3 s, 3 times)"
    assert run.silent.text("a1-prepare", "a1") == f"a1 (127.0.0.1:{one.port}) {why}"


@pytest.mark.parametrize("type_", ["command:local:Command", "aws:ec2/instance:Instance"])
def test_the_program_asks_no_question_during_another_action(type_: str) -> None:
    run, host = Watched(), Host(None)
    run.begin("a1-prepare", host)
    run.begin("other", type_=type_)
    assert run.look_after(1000) == []
    assert host.asked == 0
    run.hear("resOutputsEvent", "other")
    assert run.look_after(QUIET_SECONDS) == ["a1-prepare"]


def test_a_host_that_speaks_is_asked_once_and_its_step_may_take_as_long_as_it_takes() -> None:
    run, host, silent = Watched(), Host(BANNER), Host(None)
    run.begin("a1-node", host)
    run.begin("a2-prepare", silent)
    for _ in range(30):
        assert run.look_after(QUIET_SECONDS) == []
    assert (host.asked, silent.asked) == (1, TRIES)
    # The others go on, and only then is it the turn of the silent one.
    run.hear("resOpFailedEvent", "a1-node")
    assert run.look_after(QUIET_SECONDS - 1) == []
    assert run.look_after(1) == ["a2-prepare"]


def test_a_host_that_hangs_up_or_refuses_is_left_to_the_provider_which_counts_these_itself() -> None:
    run, hangs_up, refuses = Watched(), Host(b""), Host(None, refuses=True)
    run.begin("a1-prepare", hangs_up)
    run.begin("a2-prepare", refuses)
    assert run.look_after(QUIET_SECONDS) == []
    assert (hangs_up.asked, refuses.asked) == (1, 0)
    assert run.look_after(QUIET_SECONDS - 1) == []
    assert hangs_up.asked == 1
    refuses.refuses = False
    hangs_up.say = None
    assert run.look_after(1) == ["a1-prepare", "a2-prepare"]


def test_a_run_with_a_step_of_no_known_place_or_that_goes_on_while_hosts_are_asked_is_not_ended() -> None:
    run, host = Watched(), Host(None)
    run.begin("a1-prepare", host)
    run.meanwhile = lambda: run.begin("a2-prepare", host)
    assert run.look_after(QUIET_SECONDS) == []
    assert host.asked == TRIES
    run.meanwhile = lambda: None
    run.begin("a3-prepare")
    assert run.look_after(QUIET_SECONDS) == []
    assert host.asked == TRIES


CONNECTION = {"host": "192.0.2.1", "port": 2222, "user": "root"}


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        (
            {"connection": {_special_sig_key: _special_secret_sig, "plaintext": json.dumps(CONNECTION)}},
            "192.0.2.1:2222",
        ),
        ({"connection": CONNECTION}, "192.0.2.1:2222"),
        ({"connection": {**CONNECTION, "proxy": {"host": "door", "port": 22}}}, "bastion door:22"),
        ({"create": "true"}, "None"),
    ],
)
def test_a_connection_leads_to_its_host_or_first_to_its_bastion(inputs: dict[str, object], shown: str) -> None:
    assert str(place_of(inputs)) == shown


# A CLI as far as this is concerned: its name, a provider's, and what it does about Ctrl-C.
CLI = """
trap 'echo interrupted' INT
(exec -a /somewhere/pulumi-resource-command tail -f /dev/null) &
(exec -a pulumi-resource-aws tail -f /dev/null) &
other=$!
echo begun
wait -n; while kill -0 %1 2>/dev/null; do wait %1; done
kill -0 $other && echo "the other one is left"
kill $other
"""
# Where this is run in the background, its children ignore Ctrl-C, and bash could not catch it.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv("/bin/bash", ["pulumi", "-c", sys.argv[1]])
"""


@pytest.mark.parametrize("interrupted_already", [False, True])
def test_the_cli_is_interrupted_once_with_its_provider(
    interrupted_already: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_processes, "TAKEN_SECONDS", 20)
    stopping = threading.Event()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", START, CLI], stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        if interrupted_already:
            stopping.set()
        ending = threading.Thread(target=end_run, args=(stopping,))
        ending.start()
        if not interrupted_already:
            assert process.stdout.readline() == "interrupted\n"
            stopping.set()
        assert process.stdout.read() == "the other one is left\n"
        ending.join()
