"""The notices of AWS, Google and Azure: that the provider takes this machine back.

aws     GET spot/instance-action: 404, or {"action": "terminate", "time": "2026-11-26T14:02:00Z"} two minutes before.
        It needs a session's token (IMDSv2). A rebalance recommendation is no notice, and is not read.
gcp     GET instance/preempted: FALSE, or TRUE 30 seconds before. The request waits for a change.
azure   GET scheduledevents: events of type Preempt, with names of machines, at least 30 seconds before NotBefore.

All have a metadata service at the same link-local address. It is asked without a proxy and without redirects, and an
answer has limits of time and size.
"""

from __future__ import annotations

import json
import re
import signal
import time
from calendar import timegm
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from types import FrameType

# Google and Azure take a machine back so many seconds after the notice.
_SHORT_SECONDS = 30
_TOKEN_SECONDS = 21600
_WAIT_SECONDS = 20
_AWS_TOKEN = "/latest/api/token"  # noqa: S105 - a path
_AWS_ACTION = "/latest/meta-data/spot/instance-action"
_GOOGLE = "/computeMetadata/v1/instance/preempted"
_AZURE = "/metadata/scheduledevents?api-version=2020-07-01"
_AZURE_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_ETAG = re.compile(r"[0-9A-Za-z]{1,64}")
_TOKEN = re.compile(r"[!-~]{1,1024}")
# A reason of this form is the service's own. Slurm may append to it.
REASON = re.compile(r"(AWS|Google|Azure) takes this machine back at [0-9:]{8}Z")
ADDRESS = "169.254.169.254"
_MOST_BYTES = 65536
_SECONDS = 5.0


@dataclass(frozen=True)
class Notice:
    """The time at which a provider takes this machine back, in seconds since 1970."""

    provider: str
    at: float

    @property
    def _clock(self) -> str:
        return time.strftime("%H:%M:%SZ", time.gmtime(self.at))

    @property
    def reason(self) -> str:
        """Return the reason of the node's drain."""
        return f"{self.provider} takes this machine back at {self._clock}"

    def cause(self, node: str) -> str:
        """Return the cause of the end of its jobs."""
        return f"{self.provider} took node {node} back at {self._clock}"


Read = Callable[[], Notice | None]


def provider(name: str) -> tuple[Read, float]:
    """Return a provider's function that reads a notice, and the seconds to wait between two calls."""
    # AWS recommends five seconds, Azure one.
    return {"aws": (Aws().read, 5.0), "gcp": (Google().read, 1.0), "azure": (Azure().read, 1.0)}[name]


class Aws:
    """EC2's instance metadata service, version 2."""

    def __init__(self) -> None:
        self._token = ""

    def read(self) -> Notice | None:
        """Return the notice, or None. Raise NoAnswerError."""
        answer = self._ask()
        if answer.status == 401:
            # The token is too old, or the machine has another metadata service after a stop.
            self._token = ""
            answer = self._ask()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refused(answer, _AWS_ACTION)
        content = _object(answer)
        return Notice("AWS", _moment(content.get("time"), 120))

    def _ask(self) -> Answer:
        if not self._token:
            answer = ask(_AWS_TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}, method="PUT")
            if answer.status != 200 or not _TOKEN.fullmatch(answer.text):
                raise refused(answer, _AWS_TOKEN)
            self._token = answer.text
        return ask(_AWS_ACTION, {"X-aws-ec2-metadata-token": self._token})


class Google:
    """Google's metadata server."""

    def __init__(self) -> None:
        self._etag = "0"

    def read(self) -> Notice | None:
        """Return the notice, or None; wait for a change, some seconds at most. Raise NoAnswerError."""
        path = f"{_GOOGLE}?wait_for_change=true&timeout_sec={_WAIT_SECONDS}&last_etag={self._etag}"
        try:
            answer = ask(path, {"Metadata-Flavor": "Google"}, seconds=_WAIT_SECONDS + 10)
        except NoAnswerError:
            self._etag = "0"
            raise
        if answer.status != 200:
            self._etag = "0"
            raise refused(answer, _GOOGLE)
        # "0" is answered at once.
        self._etag = answer.etag if _ETAG.fullmatch(answer.etag) else "0"
        return Notice("Google", time.time() + _SHORT_SECONDS) if answer.text.strip().upper() == "TRUE" else None


class Azure:
    """Azure's scheduled events. They name machines, because those of a set get each other's events."""

    def __init__(self) -> None:
        self._name = ""

    def read(self) -> Notice | None:
        """Return the notice, or None. Raise NoAnswerError."""
        if not self._name:
            self._name = self._ask(_AZURE_NAME).text.strip()
        events = _object(self._ask(_AZURE)).get("Events")
        for event in events if isinstance(events, list) else ():
            if not isinstance(event, dict) or event.get("EventType") != "Preempt":
                continue
            names = event.get("Resources")
            if isinstance(names, list) and self._name in names:
                # It is empty once the event has started.
                return Notice("Azure", _moment(event.get("NotBefore"), _SHORT_SECONDS))
        return None

    @staticmethod
    def _ask(path: str) -> Answer:
        answer = ask(path, {"Metadata": "true"})
        if answer.status != 200:
            raise refused(answer, path.partition("?")[0])
        return answer


def _object(answer: Answer) -> Mapping[str, object]:
    try:
        content = json.loads(answer.text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise NoAnswerError("the metadata service does not send a JSON object")
    return content


def _moment(text: object, seconds: float) -> float:
    """Return a time in seconds since 1970; `seconds` from now if the text is no time."""
    words = str(text)
    try:
        if words.endswith("Z"):
            return timegm(time.strptime(words, "%Y-%m-%dT%H:%M:%SZ"))
        return parsedate_to_datetime(words).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return time.time() + seconds


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
