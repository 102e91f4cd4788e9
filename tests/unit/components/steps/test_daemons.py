"""Whether a daemon answers, and whether it has read the current versions of its files."""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from components.node.daemons import Daemon, answers, record_used, used_as_they_are
from tests.unit.shell import Shell

LOGIN = f"Basic {base64.b64encode(b'name:secret').decode()}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.path != "/secret" or self.headers["Authorization"] == LOGIN
        self.send_response({"/error": 500, "/elsewhere": 302}.get(self.path, 200) if allowed else 401)
        self.send_header("Location", "/error")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_an_answer_without_an_error_counts_and_no_proxy_or_redirection_is_used(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(path: str, login: str = "", at: int = port) -> bool:
        return answers(Daemon("x.service", "127.0.0.1", at, path, "some.port", (), login))

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    expected = {"/": True, "/error": False, "/elsewhere": True, "/secret": False}
    assert {path: answered(path) for path in expected} == expected
    assert answered("/secret", "name:secret")
    assert not answered("/", at=1), "a closed port"


def test_a_changed_or_missing_file_is_not_the_one_that_was_read(shell: Shell) -> None:
    paths = ["/etc/a", "/etc/b"]
    shell.write("/etc/a", "1\n")
    shell.path("/run/tailrack-private").mkdir()
    with shell.here():
        assert not used_as_they_are("x", paths)
        record_used("x", paths)
        assert used_as_they_are("x", paths)
        shell.write("/etc/b", "2\n")
        assert not used_as_they_are("x", paths)
