"""Ask a provider's metadata service, at the link-local address that all of them use.

There is no proxy and no redirect, and an answer has limits of time and size.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from types import FrameType

ADDRESS = "169.254.169.254"
_MOST_BYTES = 65536
_SECONDS = 5.0


class NoAnswerError(Exception):
    """The metadata service does not answer, or not as documented. The message is for the journal."""


@dataclass(frozen=True)
class Answer:
    """An answer: its HTTP status, its text, and its ETag."""

    status: int
    text: str
    etag: str = ""


def ask(path: str, headers: Mapping[str, str], *, method: str = "GET", seconds: float = _SECONDS) -> Answer:
    """Return the answer to a request. Raise NoAnswerError.

    seconds   limit for the whole answer
    """
    connection = HTTPConnection(ADDRESS, timeout=seconds)
    try:
        with _limit(seconds):
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(_MOST_BYTES + 1)
    except (OSError, HTTPException) as error:
        raise NoAnswerError(
            f"the metadata service at {ADDRESS} does not answer: {error or type(error).__name__}"
        ) from None
    finally:
        connection.close()
    if len(body) > _MOST_BYTES:
        raise NoAnswerError(f"the metadata service at {ADDRESS} sends more than {_MOST_BYTES} bytes")
    return Answer(response.status, body.decode("utf-8", "replace"), response.headers.get("ETag", ""))


def refused(answer: Answer, path: str) -> NoAnswerError:
    """Return the error for an answer with an unexpected status."""
    return NoAnswerError(f"the metadata service answers {path} with status {answer.status}")


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after some seconds: a socket's own limit starts again with each part of an answer."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"no whole answer within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
