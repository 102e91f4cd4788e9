"""`make github-keys`: keys of users at GitHub, which a server here plays, are shown, confirmed and recorded."""

import io
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml

from cli import github_keys
from cli.output.make_command import Make
from cli.output.terminal import Terminal
from cli.pulumi.workspace import CliError
from stacks.config import parse
from tests.unit.recorded import public_key

LAPTOP, DESK, PHONE = (public_key(name) for name in ("laptop", "desk", "phone"))
HEAD = """config:
  tailrack:cluster: {name: lab}
  # the people
  tailrack:users: [{name: ada, uid: 6001, github: ada-l}] # ada
"""


class GitHub:
    """A server that plays GitHub. `answers` has a status and a body by path; `asked` the paths that were asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        play = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                play.asked.append(self.path)
                status, body = play.answers.get(self.path, (404, b"Not Found"))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body.decode())
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def shows(self, name: str, *lines: str) -> None:
        self.answers[f"/{name}.keys"] = (200, "".join(f"{line}\n" for line in lines).encode())


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    played = GitHub()
    monkeypatch.setattr(github_keys, "GITHUB", played.url)
    monkeypatch.setenv("no_proxy", "*")
    yield played
    played.server.shutdown()
    played.server.server_close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(HEAD)
    return path


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with a person's answer, or none without a terminal; return its status and text."""

    def command(answer: str | None = "yes") -> tuple[int, str]:
        text = io.StringIO()
        console = Terminal(file=text, width=80)
        monkeypatch.setattr(console, "input", lambda prompt: (text.write(f"{prompt}\n"), answer or "")[1])
        status = github_keys.github_keys(file, console, Make("prod"), interactive=answer is not None)
        return status, text.getvalue()

    return command


def recorded(file: Path) -> Any:
    return yaml.safe_load(file.read_text())["config"].get("tailrack:github_keys")


def print_of(key: str) -> str:
    return str(asyncssh.import_public_key(key).get_fingerprint())


def test_keys_are_shown_with_fingerprints_and_recorded_after_a_yes(github: GitHub, file: Path, run: Run) -> None:
    github.shows("ada-l", LAPTOP, DESK)
    status, text = run()
    assert status == 0, text
    for key in (LAPTOP, DESK):
        assert f"+ ada (github.com/ada-l): ssh-ed25519 {print_of(key)} (github.com/ada-l)\n" in text
    assert "Record the changed keys of ada? Type yes:" in text
    assert "after make up STACK=prod" in text
    keys = [f"{LAPTOP} github.com/ada-l", f"{DESK} github.com/ada-l"]
    assert recorded(file) == {"ada-l": keys}
    assert file.read_text().startswith(HEAD), "the rest stays as it was"
    # The config is accepted as it is, and needs no GitHub.
    raw = {key.removeprefix("tailrack:"): value for key, value in yaml.safe_load(file.read_text())["config"].items()}
    raw |= yaml.safe_load("head: {name: head, site: one}\nsites: [{name: one, kind: lab, pools: [{name: a}]}]")
    assert parse(raw, base_dir=file.parent).github_keys == {"ada-l": tuple(keys)}
    assert github.asked == ["/ada-l.keys"]


@pytest.mark.parametrize("answer", ["no", "", "y", None])
def test_without_a_yes_nothing_is_recorded(github: GitHub, file: Path, run: Run, answer: str | None) -> None:
    github.shows("ada-l", LAPTOP)
    status, text = run(answer)
    assert status == 1
    assert "No key is recorded" in text
    assert file.read_text() == HEAD


def test_a_second_run_shows_gained_and_lost_keys(github: GitHub, file: Path, run: Run) -> None:
    github.shows("ada-l", LAPTOP, DESK)
    run()
    before = file.read_text()
    github.shows("ada-l", DESK, LAPTOP)
    status, text = run("no")
    assert (status, file.read_text()) == (0, before)
    assert "Pulumi.prod.yaml has these keys." in text
    github.shows("ada-l", DESK, PHONE)
    status, text = run()
    assert status == 0
    for sign, key in (("-", LAPTOP), (" ", DESK), ("+", PHONE)):
        assert f"{sign} ada (github.com/ada-l): ssh-ed25519 {print_of(key)}" in text
    assert recorded(file) == {"ada-l": [f"{DESK} github.com/ada-l", f"{PHONE} github.com/ada-l"]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, b""), "GitHub shows no key that sshd accepts"),
        ((404, b"Not Found"), "GitHub has no such account"),
        ((500, b""), "GitHub answers with status 500"),
        ((302, b"/eve.keys"), "GitHub answers with status 302"),
        ((200, b"a" * 70_000), "the answer has more than 65536 bytes"),
        ((200, f"{LAPTOP}\n".encode() * 33), "GitHub shows more than 32 keys"),
        ((200, b"\xff\xfe"), "cannot read the keys"),
    ],
)
def test_a_bad_answer_is_named(github: GitHub, file: Path, run: Run, answer: tuple[int, bytes], message: str) -> None:
    github.answers["/ada-l.keys"] = answer
    github.shows("eve", PHONE)
    status, text = run()
    assert (status, file.read_text()) == (1, HEAD)
    assert "! ada (github.com/ada-l): " in text
    assert message in text
    assert github.asked == ["/ada-l.keys"]


def test_an_answer_without_an_end_is_named(github: GitHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as silent:
        patch.setattr(github_keys, "LIMIT", 0.1)
        patch.setattr(github_keys, "GITHUB", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "cannot read the keys" in run()[1]
    github.server.shutdown()
    github.server.server_close()
    status, text = run()
    assert "! ada (github.com/ada-l): cannot read the keys: " in text
    assert (status, "Connection refused" in text) == (1, True)


def test_keys_that_sshd_does_not_accept_are_left_out_with_the_reason(github: GitHub, file: Path, run: Run) -> None:
    weak = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ=="
    github.shows("ada-l", "ssh-dss AAAAB3NzaC1kc3M=", weak, f'command="id" {DESK}', f"{LAPTOP} \x1b]52;c;aGk=\x07")
    status, text = run()
    assert status == 0
    assert "left out: ssh-dss is a DSA key" in text
    assert "left out: ssh-rsa is a key whose base64 part" in text
    assert 'left out: command="id" has options' in text
    assert "\x1b" not in text
    assert recorded(file) == {"ada-l": [f"{LAPTOP} github.com/ada-l"]}


def test_one_user_that_fails_keeps_no_other_from_being_recorded(github: GitHub, file: Path, run: Run) -> None:
    others = "{name: bob, uid: 6002, github: Bob}, {name: eve, uid: 6003}"
    file.write_text(HEAD.replace("github: ada-l}]", f"github: ada-l}}, {others}]"))
    github.shows("Bob", DESK)
    status, said = run()
    assert status == 1
    assert "Record the changed keys of bob?" in said
    assert recorded(file) == {"Bob": [f"{DESK} github.com/Bob"]}
    github.shows("ada-l", LAPTOP)
    assert run()[0] == 0
    assert recorded(file).keys() == {"Bob", "ada-l"}


@pytest.mark.parametrize("name", ["../settings/keys", "ada?tab=x", "a" * 40, "'é'", "5"])
def test_a_name_that_github_cannot_have_is_refused_first(github: GitHub, file: Path, run: Run, name: str) -> None:
    file.write_text(HEAD.replace("ada-l", name))
    with pytest.raises(CliError, match=r"tailrack:users\[0\].github: .* is not a GitHub name"):
        run()
    assert github.asked == []


@pytest.mark.parametrize(
    "section",
    [
        "tailrack:github_keys: {}",
        "tailrack:github_keys:",
        "tailrack:github_keys: {ada-l: [x], Bob: [y]} # theirs",
        "tailrack:github_keys:\n    # hers\n    ada-l:\n    - x\n    - y # old\n    # his\n    Bob: [y]",
        "tailrack:github_keys:\n    Bob:\n      - y\n    ada-l:\n      - x\n\n  # more",
        "tailrack:github_keys:\n    ada-l: []",
    ],
)
def test_an_update_keeps_the_rest_of_the_file(github: GitHub, file: Path, run: Run, section: str) -> None:
    text = f"{HEAD}  {section}\n  tailrack:storage: {{}} # the share\n"
    file.write_text(text)
    bobs = (recorded(file) or {}).get("Bob")
    github.shows("ada-l", LAPTOP, DESK)
    assert run()[0] == 0
    expected = {"ada-l": [f"{LAPTOP} github.com/ada-l", f"{DESK} github.com/ada-l"], **({"Bob": bobs} if bobs else {})}
    assert recorded(file) == expected
    for line in text.splitlines():
        if "#" in line and "old" not in line and "theirs" not in line:
            assert line in file.read_text().splitlines()


def test_a_file_that_cannot_be_edited_stays_and_the_lines_are_shown(github: GitHub, file: Path, run: Run) -> None:
    text = f"{HEAD}  tailrack:github_keys:\n    ada-l: # hers\n    - x\n"
    file.write_text(text)
    github.shows("ada-l", LAPTOP)
    with pytest.raises(CliError, match=r"the keys cannot be added to Pulumi\.prod\.yaml") as error:
        run()
    assert f"- {LAPTOP} github.com/ada-l" in str(error.value)
    assert file.read_text() == text
    assert [path.name for path in file.parent.iterdir()] == [file.name]
