"""What machines and users write is words wherever operators read it: at the terminal, on the page, in the comment."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import commands, lab_commands, open_stack, show_commands
from cli.changes_to_allow import Checks
from cli.output.terminal import Terminal
from cli.preview.comment import comment
from cli.preview.plan import Plan
from cli.pulumi.workspace import CliError
from cli.report.page import page
from cli.run_events import Event, Failure, Summary
from cli.stack_config.written_config import WrittenConfig
from tests.unit.cli.conftest import Play
from tests.unit.cli.test_report_page import Read

PROJECT = Path(__file__).parents[3]
# A title and a cleared screen, C1, a line of its own, turned directions, markup of rich, half a surrogate.
EVIL = "x\x1b]0;title\x07\x1b[2J\x9b1A\rgone\u202eevil\u2066\u200f[red]RED[/red][link=http://e]l[/link]\x7f\x00\udc80"
OUTPUTS = json.loads((PROJECT / "tests" / "fixtures" / "outputs-2xH200-tailnet.json").read_text())
URN = "urn:pulumi:dev::tailrack::command:remote:Command::a1-node"
STEP = (URN, f"a1-node{EVIL}", "command:remote:Command")
LAB = {"name": "here", "kind": "lab"}


def hostile(value: Any, key: str = "") -> Any:
    """The outputs with EVIL behind each text that is no word of the program's own."""
    if isinstance(value, dict):
        return {name: hostile(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, key) for item in value]
    return value + EVIL if isinstance(value, str) and key not in ("verdict", "severity", "check") else value


def printed(capfd: pytest.CaptureFixture[str]) -> str:
    """What both streams got, which must be words and lines."""
    out, err = capfd.readouterr()
    text = out + err
    assert [character for character in text.replace("\n", "") if not character.isprintable()] == []
    return text


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, play: Play) -> Any:
    """Run a command of the driver on a stack whose machines and engine say EVIL wherever they say anything."""
    summary = Summary(failures=[Failure(URN, f"{EVIL}\nnext: do {EVIL}", ""), Failure("", EVIL)])
    events = [
        Event("start", "create", *STEP, before={"stdin": "A=1"}, after={"stdin": f"A='{EVIL}'"}),
        Event("message", text=f"{EVIL}\n{EVIL}"),
        Event("failed", "create", *STEP),
    ]
    written = WrittenConfig({"tailrack:sites": LAB, "tailrack:head": {"site": "here"}})
    play(events, lambda: summary, why=EVIL, written=written, outputs=lambda: hostile(OUTPUTS))

    def on_head(_deployment: Any, _command: str, _head: str = "") -> list[str]:
        # JOBID NAME, as a user may have named it, and what is no UTF-8 at all.
        told = b"".join([b"12 ", EVIL.encode(errors="surrogateescape"), b"\xff\xc2\x9b2J \xe2\x80\xae end\n"])
        program = f"import os; os.write(1, {told!r}); os.write(2, {told!r})"
        return [sys.executable, "-c", program]

    monkeypatch.setattr(show_commands, "on_head", on_head)
    monkeypatch.setattr(lab_commands, "prepare", lambda _: None)
    monkeypatch.setattr("lab.docker_daemon.ensure_daemon", lambda: None)
    return lambda *words: commands.main(["--state-dir", str(tmp_path), *words])


@pytest.mark.parametrize("command", ["up", "preview", "status", "images", "down", "engine", "report", "outputs"])
def test_commands_print_output_of_machines_and_users_only_as_text(command, run, capfd):
    run(command)
    assert "title" in printed(capfd) or command == "report"


def test_a_jobs_name_in_the_status_is_shown_with_its_escapes_visible(run, capfd):
    assert run("status") == 0
    said = printed(capfd)
    assert r"12 x\x1b]0;title\x07\x1b[2J\x9b1A gone\u202eevil" in said
    assert r"\xff\x9b2J \u202e end" in said


def test_a_refusal_that_quotes_a_machine_is_words(monkeypatch, tmp_path, capfd):
    def refuse(*_: object) -> None:
        raise CliError(f"{EVIL}\n{EVIL}")

    monkeypatch.setattr(open_stack, "open_deployment", refuse)
    assert commands.main(["--state-dir", str(tmp_path), "outputs"]) == 1
    assert "[red]RED[/red]" in printed(capfd)


def test_the_terminal_turns_unescaped_output_into_text(capfd):
    terminal = Terminal()
    terminal.print(f"{EVIL}\nsecond line")
    terminal.print(EVIL, style="red")
    said = printed(capfd)
    assert "\nsecond line\n" in said
    assert "[red]RED[/red]" in said


def test_a_command_of_the_shell_is_words_on_a_terminal_and_its_own_bytes_in_a_file(tmp_path):
    told = EVIL.encode(errors="surrogateescape") + b"\xff\n"
    asked = [sys.executable, "-c", f"import os; os.write(1, {told!r})"]
    program = f"from cli.output.terminal import run_shown; raise SystemExit(run_shown({asked!r}, always=False))"
    plain = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    assert plain.stdout == told
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", program], cwd=PROJECT, stdout=theirs, check=True)
    shown = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    assert r"x\x1b]0;title" in shown
    assert shown.replace("\r\n", "").isprintable()


def test_the_page_shows_every_text_of_a_machine_as_words():
    text = page(hostile(OUTPUTS), EVIL, EVIL)
    assert [character for character in text.replace("\n", "") if not character.isprintable()] == []
    assert r"x\x1b]0;title" in Read(text).words
    text.encode()


def test_the_comment_shows_every_text_of_a_machine_as_words():
    summary = Summary(failures=[Failure("", f"{EVIL}\n```\n@all")])
    before, after = ({"stdin": f"A={value}\n#!/bin/bash\n"} for value in ("1", f"'{EVIL}'"))
    steps = [Event("start", "update", *STEP, before=before, after=after), Event("start", "create", *STEP)]
    text = comment(EVIL, Plan.of(steps, [], summary), summary.failures, Checks(()))
    assert [character for character in text.replace("\n", "") if not character.isprintable()] == []
    assert "[2J" in text
