"""An HTTP call ends within its limits, and its error repeats no secret."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from stacks.http_client import ApiError, call


@contextmanager
def server(first: bytes, rest: bytes = b"", pause: float = 0.0) -> Iterator[str]:
    """Answer one call with `first`, then each byte of `rest` after a pause."""
    listener, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(first)
            for byte in rest:
                # Not time.sleep, which another test may have replaced by the time that this thread ends.
                ended.wait(pause)
                connection.sendall(bytes([byte]))

    threading.Thread(target=answer, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
    ended.set()
    listener.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "rest", "status"), [(b"", HEAD, 0), (HEAD, b"x" * 999, 200)], ids=["headers", "body"]
)
def test_an_answer_that_drips_ends_at_the_total_limit(first: bytes, rest: bytes, status: int) -> None:
    began = time.monotonic()
    with server(first, rest, 0.05) as url, pytest.raises(ApiError, match=r"no complete answer within 0\.4 s") as error:
        call("GET", url, {}, seconds=0.4)
    assert time.monotonic() - began < 30
    assert error.value.status == status


def test_an_answer_that_is_too_long_is_refused_and_one_that_fits_is_read() -> None:
    with server(HEAD + b"x" * 1000) as url, pytest.raises(ApiError, match="more than 999 bytes"):
        call("GET", url, {}, most=999)
    with server(HEAD + b"x" * 1000) as url:
        assert call("GET", url, {}, most=1000) == b"x" * 1000


@pytest.mark.parametrize("echo", ["{0}", "Bearer {0}!", "key '{1}' is short", "a{0}b"])
def test_an_error_repeats_no_secret_and_no_long_part_of_one(echo: str) -> None:
    secret = "sk-0123456789abcdefghij"
    body = b'{"message": "' + echo.format(secret, secret[:18]).encode() + b'"}'
    with (
        server(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as url,
        pytest.raises(ApiError, match=r"400 .*\[secret\]") as error,
    ):
        call("GET", url, {}, secrets=[secret])
    assert secret[:14] not in str(error.value)
