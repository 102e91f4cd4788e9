"""What people read while steps run, and of those that failed."""

import io
import json
import threading
from pathlib import Path

import pytest
from rich.console import Console

from cli.output import failures
from cli.output.failures import print_failures, with_remedies
from cli.output.progress import Progress, describe
from cli.output.terminal import Terminal
from cli.preview.plan import Plan, render
from cli.run_events import Event, Failure, Summary
from cli.trust import _lines
from components.roles.program import program
from components.steps.command_line import command, render_request
from components.steps.composition import Script
from components.steps.label import StepLabel
from stacks.sites.hosts.unknown_host_keys import UnverifiedHost

REGISTER = StepLabel("b1-register", "gateway", "b1: register on the head node").on("exec true")
URN = "urn:pulumi:dev::tailrack::command:remote:Command::b1-register"
STEP = (URN, "b1-register", "command:remote:Command")


def printed(*events: Event, preview: bool = False) -> list[str]:
    """The lines that progress prints for events, where there is no terminal."""
    text = io.StringIO()
    with Progress(Terminal(file=text, width=120), preview) as progress:
        for event in events:
            progress.on_event(event)
    return text.getvalue().splitlines()


def explained(message: str, command: str) -> str:
    """The message of a failure, with its remedy."""
    return with_remedies(Summary(failures=[Failure(URN, message, command)])).failures[0].message


ESCAPES = "it says \x1b]0;title\x07\x1b[2J\x9b1A\rgone\u202e"


def _request(value: str) -> dict[str, str]:
    return {"stdin": render_request("step", "machine", "", "", {"A": value})}


def test_a_machines_output_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    update = Event("start", "update", *STEP, before=_request("1"), after=_request(ESCAPES))
    for said in ("".join(printed(Event("message", text=ESCAPES))), "".join(render(Plan.of([update], [], Summary())))):
        assert "it says" in said
        assert said.isprintable()
    console = Console(width=120, markup=False)
    print_failures(console, Summary(failures=[Failure(URN, f"{ESCAPES}\nnext: do it", REGISTER)]), Progress(console))
    shown = capsys.readouterr().out
    assert "\nnext: do it" in shown
    assert shown.replace("\n", "").isprintable()


def test_a_server_without_a_key_cannot_rewrite_the_lines_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    stranger = UnverifiedHost("n1\x1b[1A", "10.0.0.1", 22, Path("known"), (), why_not=ESCAPES)
    Console(width=120, markup=False).print(*_lines([stranger]))
    shown = capsys.readouterr().out
    assert "it says" in shown
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize("command", ["", "[secret]", "echo hello", ": one 'two"])
def test_a_step_without_a_label_is_described_by_its_name(command: str) -> None:
    assert describe(command, "validate-thing") == "validate-thing"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("done", " + b1: register on the head node                        created in 1.2 s"),
        ("failed", " x b1: register on the head node                        failed in 1.2 s"),
        ("skipped", "   b1: register on the head node                        skipped"),
    ],
)
def test_the_end_of_a_step_is_a_line(kind: str, line: str) -> None:
    ended = Event(kind, "create" if kind != "skipped" else "", *STEP, 1.24, command=REGISTER)
    assert printed(Event("start", "create", *STEP, command=REGISTER), ended) == [line]


def test_a_preview_shows_steps_that_would_start_and_none_that_end() -> None:
    events = [Event(kind, "replace", *STEP, command=REGISTER) for kind in ("start", "done")]
    assert printed(*events, preview=True) == []
    assert [*render(Plan.of(events, [], Summary()))] == [f" ± {'register on the head node: b1':<52} replace"]


# In the words of the CLI's provider and of the in-process engine.
OUT_OF_REACH = {
    "the host key at the address of gateway differs from the config": (
        "ssh: handshake failed: ssh: host key mismatch",
        "Host key is not trusted for host 192.0.2.1",
    ),
    "check user and private_key_file of gateway": (
        "ssh: unable to authenticate, attempted methods [none publickey]",
        "Permission denied for user ops on host 192.0.2.1",
    ),
    "restart gateway or its sshd (a machine without free memory behaves like this), or remove gateway from": (
        "gateway (192.0.2.1:22) accepts connections but does not answer (no SSH banner in 10 s, 3 times)",
    ),
    "check that gateway is on": ("after 5 failed attempts: dial tcp 192.0.2.1:22: i/o timeout",),
    "the connection to gateway broke during the step": (
        "wait: remote command exited without exit status or exit signal",
        "read tcp 192.0.2.9:40000->192.0.2.1:22: read: connection timed out",
        "Process no exit status: the connection was lost",
        "Server not responding to keepalive",
    ),
}


@pytest.mark.parametrize("remedy", OUT_OF_REACH)
def test_a_machine_out_of_reach_gets_a_remedy_that_names_it_and_not_the_steps_node(remedy: str) -> None:
    for message in OUT_OF_REACH[remedy]:
        first, _, rest = explained(message, REGISTER).partition("\nnext: ")
        assert first == message
        assert rest.startswith(remedy)
        assert "b1" not in rest


@pytest.mark.parametrize(
    "message", ["tailrack: after 5 failed attempts\nnext: open port 22", "Process exited with status 1"]
)
def test_a_scripts_own_message_and_a_failure_with_another_cause_get_no_remedy(message: str) -> None:
    assert explained(message, REGISTER) == message


def test_a_connection_that_breaks_is_named_although_the_failure_quotes_the_command() -> None:
    quoted = json.dumps(command(Script({}), program(), ".tailrack/scripts", "up"))
    message = f"wait: remote command exited without exit status or exit signal: running {quoted}:\n"
    assert "next: the connection to gateway broke during the step" in explained(message, REGISTER)


BANNER = (".bashrc", "must print nothing", "[[ $- == *i* ]] || return")
NO_SFTP = (
    "Subsystem sftp internal-sftp",
    "is a pod behind its provider's SSH proxy",
    "rent a virtual machine or bare metal",
)


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("error receiving version packet: Max packet size exceeded", BANNER),
        ("Received message too long 1", BANNER),
        ("ssh: subsystem request failed", NO_SFTP),
        ("session request failed", NO_SFTP),
    ],
)
def test_a_file_transfer_with_a_login_banner_or_without_sftp_gets_a_hint(said: str, parts: tuple[str, ...]) -> None:
    remedy = explained(f"error: {said}", REGISTER)
    assert [part for part in parts if part not in remedy] == []


@pytest.mark.parametrize(
    ("printed", "first"),
    [
        ("tailrack: a1: step a1-prepare failed: no room\nnext: make room\n", "tailrack: a1: step a1-prepare failed"),
        ("", "Process exited with status 1"),
    ],
)
def test_the_output_of_a_failed_step_comes_before_no_command(printed: str, first: str) -> None:
    message = f'Process exited with status 1: running "{REGISTER} bash -c \'eval "$(cat)"\'":\n{printed}'
    heading, line, *_ = failures.describe_failure(Failure(URN, message, REGISTER)).splitlines()
    assert heading.startswith("failed: ")
    assert line.startswith(first)
    assert "eval" not in line


class Written(io.StringIO):
    """A pipe that says when something has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def write(self, text: str) -> int:
        self.came.set()
        return super().write(text)


def test_progress_names_a_long_running_step_without_a_terminal() -> None:
    pipe = Written()
    with Progress(Terminal(file=pipe, width=120), quiet_seconds=0.01) as progress:
        progress.on_event(Event("start", "delete", *STEP, command=REGISTER))
        assert pipe.came.wait(30)
    assert pipe.getvalue().startswith("   now: b1: register on the head node, for 0 s\n")
